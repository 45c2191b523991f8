import { randomBytes } from 'node:crypto';
import { OptionError } from '../core/errors.js';
import { checkInteger, checkKeys, checkText, show } from '../core/options.js';
import type { AuditChange, AuditEntry } from '../store/audit.js';
import type { Store } from '../store/port.js';

/** What is to be kept of something that somebody did. */
export interface AuditInput {
  /** Who. */
  readonly actor: string;
  /** Such as `jobs.retry`. */
  readonly action: string;
  /** What it was done to, in words. */
  readonly target: string;
  /** What came of it, in words. */
  readonly outcome: string;
  /** Any JSON, for programs. */
  readonly details?: unknown;
}

export interface AuditPage {
  readonly items: readonly AuditEntry[];
  readonly next: string | null;
}

const LONGEST = 2_000;
const shortened = (text: string): string => (text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text);

/** An entry is one line, whatever names and ids stand in it: nobody can write a second one into it. */
const oneLine = (text: string): string =>
  shortened(text.replaceAll(/[\p{Cc}\p{Cf}\u2028\u2029]+/gu, ' ').trim() || '?');

/** What an entry says from before an action until after it; where its process died in between, for ever. */
const BEGUN = 'begun, end unknown';

/** What came of an action: the answer, and the same for the log. */
export interface Done<T> {
  readonly answer: T;
  readonly outcome: string;
}

/**
 * Does something that belongs into the log. It stands there before it is done, so that nothing is done that is not there; what
 * came of it is added. A log that does not take the end does not undo what was done: `lost` hears of it.
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
  const end = (outcome: string): Promise<unknown> => audit.amend(id, { outcome }).catch(lost);
  try {
    const { answer, outcome } = await work();
    await end(outcome);
    return answer;
  } catch (error) {
    await end(refusal(error));
    throw error;
  }
}

/** `mill.audit`: who did what by hand, on every instance of the cluster. */
export class Audit {
  readonly #store: () => Promise<Store>;
  readonly #keepMs: number;

  constructor(store: () => Promise<Store>, keepMs: number) {
    this.#store = store;
    this.#keepMs = keepMs;
  }

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

  /** For something that goes on: says what came of it so far. Undefined where there is no such entry. */
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

  /** The newest first. */
  async list(options: { readonly limit?: number; readonly cursor?: string } = {}): Promise<AuditPage> {
    checkKeys('audit.list', options, ['limit', 'cursor']);
    const limit = checkInteger('audit.list', 'limit', options.limit ?? 50, 1, 1_000);
    const after = options.cursor === undefined ? undefined : place(options.cursor);
    const page = { limit, ...(after === undefined ? {} : { after }) };
    const { entries, more } = await (await this.#store()).audit.list(page);
    const last = entries.at(-1);
    const next = last === undefined ? '' : JSON.stringify({ at: last.at.toISOString(), id: last.id });
    return { items: entries, next: more ? Buffer.from(next).toString('base64url') : null };
  }
}

function place(cursor: unknown): { readonly at: Date; readonly id: string } {
  try {
    const { at, id } = JSON.parse(Buffer.from(String(cursor), 'base64url').toString()) as Record<
      string,
      unknown
    >;
    const time = new Date(String(at));
    if (typeof id === 'string' && !Number.isNaN(time.getTime())) return { at: time, id };
  } catch {
    // Refused below.
  }
  throw new OptionError(`audit.list: cursor must be \`next\` of an earlier answer, got ${show(cursor)}.`);
}
