/**
 * References that do not reveal what they refer to: ids, and cursors of lists whose keys the viewer may not see. The
 * same text always gives the same reference, so that the page recognises its rows.
 */
import { createCipheriv, createDecipheriv, createHmac, randomBytes } from 'node:crypto';
import { notFound } from '../http/errors.js';

/** No plain reference contains this character. */
const MARK = '~';
const CIPHER = 'aes-256-gcm';
const IV_BYTES = 12;
const TAG_BYTES = 16;

export class Seal {
  readonly #key: Buffer;

  /** Processes with the same secret can open each other's references. */
  constructor(secret: string | undefined) {
    this.#key = this.#digest(secret ?? randomBytes(32), 'tidemill dashboard references');
  }

  static isClosed(reference: string): boolean {
    return reference.startsWith(MARK);
  }

  /** A reference opens only for the `purpose` it was closed for. */
  close(reference: string, purpose = ''): string {
    // Derived from purpose and text, so that no IV is used for two texts.
    const iv = this.#digest(this.#key, JSON.stringify([purpose, reference])).subarray(0, IV_BYTES);
    const cipher = createCipheriv(CIPHER, this.#key, iv).setAAD(Buffer.from(purpose));
    const sealed = Buffer.concat([cipher.update(reference), cipher.final()]);
    return MARK + Buffer.concat([iv, cipher.getAuthTag(), sealed]).toString('base64url');
  }

  /** Returns a plain reference as it is. */
  open(reference: string): string {
    return Seal.isClosed(reference) ? this.openClosed(reference, '') : reference;
  }

  /** Refuses a plain reference, because it may be forged. */
  openClosed(reference: string, purpose: string): string {
    const bytes = Buffer.from(reference.slice(MARK.length), 'base64url');
    try {
      const decipher = createDecipheriv(CIPHER, this.#key, bytes.subarray(0, IV_BYTES), {
        authTagLength: TAG_BYTES,
      }).setAAD(Buffer.from(purpose));
      decipher.setAuthTag(bytes.subarray(IV_BYTES, IV_BYTES + TAG_BYTES));
      return Buffer.concat([
        decipher.update(bytes.subarray(IV_BYTES + TAG_BYTES)),
        decipher.final(),
      ]).toString();
    } catch {
      throw notFound(
        'This link comes from another process, an earlier run, or another list. Find the item in the list again.',
      );
    }
  }

  #digest(key: string | Buffer, text: string): Buffer {
    return createHmac('sha256', key).update(text).digest();
  }
}
