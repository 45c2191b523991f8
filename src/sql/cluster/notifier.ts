import type { Timer } from '../../core/clock.js';
import { realTimer } from '../../core/clock.js';
import type { WatchHandlers } from '../../store/port.js';
import type { Driver, Queryable } from '../connection/driver.js';
import type { Names } from '../schema/names.js';

/** What instances tell each other on the channel of their schema. */
export type Message =
  | { readonly what: 'jobs'; readonly key?: string; readonly name?: string }
  | { readonly what: 'tasks' | 'cancel' | 'news' }
  | { readonly what: 'nonce'; readonly nonce: string };

/**
 * The end of a statement that may notify: $2 is the channel, $3 the message, empty for none. The notification belongs
 * to the write, and PostgreSQL delivers it at commit.
 */
export const NOTIFY = `union all select pg_notify($2::text, $3::text)::text where $3::text <> ''`;

/** A notification holds up to 8,000 bytes. A job with a longer name wakes the others without being named. */
const MOST_BYTES = 7_000;

export function wakeMessage(job?: { readonly id: string; readonly name: string }): string {
  const named = job === undefined ? {} : { key: job.id, name: job.name };
  const hint = JSON.stringify({ what: 'jobs', ...named } satisfies Message);
  return Buffer.byteLength(hint) <= MOST_BYTES ? hint : wakeMessage();
}

export const message = (what: 'tasks' | 'cancel' | 'news'): string =>
  JSON.stringify({ what } satisfies Message);

/** Passes a message on to the handlers. Anything else on the channel is ignored. */
export function hear(text: string, handlers: WatchHandlers): void {
  const heard = parsed(text);
  if (heard?.what === 'jobs') {
    const { key, name } = heard;
    handlers.wake('jobs', key === undefined || name === undefined ? undefined : { key, name });
  } else if (heard?.what === 'tasks') handlers.wake('tasks');
  else if (heard?.what === 'cancel') handlers.cancel();
  else if (heard?.what === 'news') handlers.news();
}

export function parsed(text: string): Message | undefined {
  try {
    return JSON.parse(text) as Message;
  } catch {
    return undefined;
  }
}

const EVERY_MS = 100;
const FOR_MS = 1_000;

/**
 * Wakes other instances. For jobs inserted in a caller's transaction, whose commit is not seen here, it notifies every
 * 100 ms for a second after the insert. A notification inside the transaction would be exact, but PostgreSQL serializes
 * the commits of transactions that notify.
 */
export class Notifier {
  /** `notify: 'commit'`: a caller's transaction carries the notification itself. */
  readonly notifiesAtCommit: boolean;
  readonly #driver: Driver;
  readonly #names: Names;
  /** Transactions with new jobs. If the store itself opened one, it sees the commit, and notifies at once. */
  readonly #awaited = new WeakSet<Queryable>();
  #timer: Timer | undefined;
  #endsAt = 0;

  constructor(driver: Driver, names: Names, ringsAtCommit: boolean) {
    this.#driver = driver;
    this.#names = names;
    this.notifiesAtCommit = ringsAtCommit;
  }

  /** Call after inserting jobs into a transaction that is still open. */
  afterCommit(transaction: Queryable): void {
    if (this.notifiesAtCommit) return;
    this.#awaited.add(transaction);
    this.#endsAt = performance.now() + FOR_MS;
    this.#timer ??= realTimer(EVERY_MS, () => this.#again());
  }

  /** Call after committing a transaction that the store opened. */
  committed(transaction: Queryable): void {
    if (this.#awaited.delete(transaction)) this.notify(wakeMessage());
  }

  /** Best effort: an instance that misses it finds the work by polling. */
  notify(text: string): void {
    void this.#driver
      .query('select pg_notify($1::text, $2::text)::text as json', [this.#names.channel, text])
      .catch(() => undefined);
  }

  stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#endsAt = 0;
  }

  #again(): void {
    this.#timer = undefined;
    this.notify(wakeMessage());
    if (performance.now() < this.#endsAt) this.#timer = realTimer(EVERY_MS, () => this.#again());
  }
}
