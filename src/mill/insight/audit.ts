import { randomBytes } from 'node:crypto';
import { decodeCursor, pageOfItems, type Cursor } from '../../core/cursor.js';
import { checkInteger, checkKeys, checkText } from '../../core/options.js';
import type { AuditChange, AuditEntry } from '../../store/audit.js';
import type { Store } from '../../store/port.js';

/** A manual action to record. */
export interface AuditInput {
  /** Who did it. */
  readonly actor: string;
  /** The kind of action, such as `jobs.retry`. */
  readonly action: string;
  /** What it was done to, in words. */
  readonly target: string;
  /** The result, in words. */
  readonly outcome: string;
  /** Any JSON, for programs. Default: none. */
  readonly details?: unknown;
}

export interface AuditPage {
  readonly items: readonly AuditEntry[];
  /** The cursor of the next page; null if there is none. */
  readonly next: string | null;
}

const LONGEST = 2_000;
const shortened = (text: string): string => (text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text);

/** Keeps an entry on one line, whatever names and ids it contains, so that none of them can forge a second entry. */
const oneLine = (text: string): string =>
  shortened(text.replaceAll(/[\p{Cc}\p{Cf}\u2028\u2029]+/gu, ' ').trim() || '?');

/** The outcome of an entry while its action runs. It remains if the process dies meanwhile. */
const BEGUN = 'begun, end unknown';

/** The result of an action, and its description for the log. */
export interface Done<T> {
  readonly answer: T;
  readonly outcome: string;
  /** Replaces the details of the entry, if only the action tells them. Default: they stay. */
  readonly details?: unknown;
}

/**
 * Performs an action and records it. The entry is written before the action, so that no action goes unrecorded, and its
 * outcome is added afterwards. If the outcome cannot be written, the action stands, and `lost` gets the error.
 */
export async function audited<T>(
  audit: Pick<Audit, 'append' | 'amend'>,
  entry: Omit<AuditInput, 'outcome'>,
  work: () => Promise<Done<T>>,
  {
    refusal,
    lost,
  }: { readonly refusal: (error: unknown) => string; readonly lost: (error: unknown) => void },
): Promise<T> {
  const { id } = await audit.append({ ...entry, outcome: BEGUN });
  const end = (change: AuditChange): Promise<unknown> => audit.amend(id, change).catch(lost);
  try {
    const { answer, ...change } = await work();
    await end(change);
    return answer;
  } catch (error) {
    await end({ outcome: refusal(error) });
    throw error;
  }
}

/** The log is read forwards only, newest first. */
const isAuditCursor = (cursor: Cursor): cursor is Cursor & { readonly at: Date } =>
  cursor.at !== null && !cursor.back;

/** `mill.audit`: the log of manual actions, shared by all instances of the cluster. */
export class Audit {
  readonly #store: () => Promise<Store>;
  readonly #keepMs: number;

  constructor(store: () => Promise<Store>, keepMs: number) {
    this.#store = store;
    this.#keepMs = keepMs;
  }

  /** Adds an entry. Texts are reduced to one line of at most 2,000 characters. */
  async append(entry: AuditInput): Promise<AuditEntry> {
    const where = 'audit.append';
    checkKeys(where, entry, ['actor', 'action', 'target', 'outcome', 'details']);
    const text = (key: 'actor' | 'action' | 'target' | 'outcome'): string =>
      oneLine(checkText(where, key, entry[key]));
    const kept = {
      id: randomBytes(12).toString('hex'),
      actor: text('actor'),
      action: text('action'),
      target: text('target'),
      outcome: text('outcome'),
      ...(entry.details === undefined ? {} : { details: entry.details }),
    };
    return (await this.#store()).audit.append(kept, this.#keepMs);
  }

  /** Updates an entry, for an action that is in progress. Returns undefined if there is no such entry. */
  async amend(id: string, change: AuditChange): Promise<AuditEntry | undefined> {
    checkKeys('audit.amend', change, ['outcome', 'details', 'stopRequested']);
    const outcome =
      change.outcome === undefined
        ? {}
        : { outcome: oneLine(checkText('audit.amend', 'outcome', change.outcome)) };
    return (await this.#store()).audit.amend(checkText('audit.amend', 'id', id), { ...change, ...outcome });
  }

  async get(id: string): Promise<AuditEntry | undefined> {
    return (await this.#store()).audit.get(checkText('audit.get', 'id', id));
  }

  /** Returns one page of entries, newest first. */
  async list(
    options: {
      /** How many entries a page has, from 1 to 1,000. Default: 50. */
      readonly limit?: number;
      /** `next` of an earlier page. Default: the first page. */
      readonly cursor?: string;
    } = {},
  ): Promise<AuditPage> {
    checkKeys('audit.list', options, ['limit', 'cursor']);
    const limit = checkInteger('audit.list', 'limit', options.limit ?? 50, 1, 1_000);
    const from =
      options.cursor === undefined
        ? undefined
        : decodeCursor('audit.list', options.cursor, isAuditCursor, '`next` of an earlier page');
    const page = { limit, ...(from === undefined ? {} : { after: { at: from.at, id: from.key } }) };
    const { entries, more } = await (await this.#store()).audit.list(page);
    const { items, next } = pageOfItems({ items: entries, more }, { from }, ({ at, id }, back) => ({
      at,
      key: id,
      back,
    }));
    return { items, next };
  }
}
