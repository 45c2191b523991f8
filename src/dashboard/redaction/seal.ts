/**
 * References that do not tell what they refer to: ids and places in lists whose keys the viewer may not see. The same text gives
 * the same reference, so that a page recognises its rows.
 */
import { createCipheriv, createDecipheriv, createHmac, randomBytes } from 'node:crypto';
import { notFound } from '../http/errors.js';

/** No reference in the open has this sign. */
const MARK = '~';
const CIPHER = 'aes-256-gcm';
const IV_BYTES = 12;
const TAG_BYTES = 16;

export class Seal {
  readonly #key: Buffer;

  /** Processes with the same secret read each other's references. */
  constructor(secret: string | undefined) {
    this.#key = this.#digest(secret ?? randomBytes(32), 'tidemill dashboard references');
  }

  static isClosed(reference: string): boolean {
    return reference.startsWith(MARK);
  }

  /** `purpose`: it is opened for the same one only. */
  close(reference: string, purpose = ''): string {
    // Made of the text itself, one is never used for two texts.
    const iv = this.#digest(this.#key, JSON.stringify([purpose, reference])).subarray(0, IV_BYTES);
    const cipher = createCipheriv(CIPHER, this.#key, iv).setAAD(Buffer.from(purpose));
    const sealed = Buffer.concat([cipher.update(reference), cipher.final()]);
    return MARK + Buffer.concat([iv, cipher.getAuthTag(), sealed]).toString('base64url');
  }

  /** One in the open is answered as it is. */
  open(reference: string): string {
    return Seal.isClosed(reference) ? this.openClosed(reference, '') : reference;
  }

  /** Refuses one in the open: it may be forged. */
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
        'This link was made by another process, an earlier one, or for another list. Look for it in the list again.',
      );
    }
  }

  #digest(key: string | Buffer, text: string): Buffer {
    return createHmac('sha256', key).update(text).digest();
  }
}
