import type { Timer } from '../../core/clock.js';
import { realTimer } from '../../core/clock.js';
import type { ScopeKind, ScopeRef, WatchHandlers } from '../../store/port.js';
import type { Driver, Queryable } from '../connection/driver.js';
import type { Names } from '../schema/names.js';

/** What instances tell each other on the channel of their schema. */
export type Message =
  | {
      readonly what: 'jobs';
      readonly key?: string;
      readonly name?: string;
      /** Absent: jobs of any name may be due, as in messages of older versions. */
      readonly due?: readonly (readonly [name: string, count: number])[];
    }
  | { readonly what: 'tasks' | 'cancel' | 'news' }
  | { readonly what: 'freed'; readonly scopes: readonly (readonly [kind: ScopeKind, name: string])[] }
  /** Somebody watches jobs: tell which change. */
  | { readonly what: 'watched' }
  /** These jobs have changed; without ids, any may have. */
  | { readonly what: 'changed'; readonly ids?: readonly string[] }
  | { readonly what: 'nonce'; readonly nonce: string };

/**
 * The end of a statement that may notify: $2 is the channel, $3 the message, empty for none. The notification belongs
 * to the write, and PostgreSQL delivers it at commit.
 */
export const NOTIFY = `union all select pg_notify($2::text, $3::text)::text where $3::text <> ''`;

/** A notification holds up to 8,000 bytes. A job with a longer name wakes the others without being named. */
const MOST_BYTES = 7_000;

/** A job for which instances are woken. `wake` is as in `NewJob`; absent: the job is one. */
export interface Waking {
  readonly id: string;
  readonly name: string;
  readonly wake?: number;
}

/** Names the first job, and how many there are of each name. Without jobs, anything may be due. */
export function wakeMessage(...jobs: readonly Waking[]): string {
  const [first] = jobs;
  if (first === undefined) return JSON.stringify({ what: 'jobs' } satisfies Message);
  const due = new Map<string, number>();
  for (const { name, wake = 1 } of jobs) due.set(name, (due.get(name) ?? 0) + wake);
  const named = { what: 'jobs', key: first.id, name: first.name } satisfies Message;
  const isWhole = jobs.every(({ wake }) => wake !== 0);
  const text = JSON.stringify((isWhole ? { ...named, due: [...due] } : named) satisfies Message);
  return Buffer.byteLength(text) <= MOST_BYTES ? text : wakeMessage();
}

export const message = (what: 'tasks' | 'cancel' | 'news' | 'watched' | 'changed'): string =>
  JSON.stringify({ what } satisfies Message);

/** Jobs of these names may run again, since keys of theirs are free. */
function keysMessage(names: Iterable<string>): string {
  const due = [...names].map((name) => [name, 1] as const);
  const text = JSON.stringify({ what: 'jobs', due } satisfies Message);
  return Buffer.byteLength(text) <= MOST_BYTES ? text : wakeMessage();
}

/** Scopes whose limits or permits have changed, in as many messages as their length needs. */
export function freedMessages(scopes: readonly ScopeRef[]): readonly string[] {
  const of = (some: readonly ScopeRef[]): string =>
    JSON.stringify({
      what: 'freed',
      scopes: some.map(({ kind, name }) => [kind, name] as const),
    } satisfies Message);
  const text = of(scopes);
  if (Buffer.byteLength(text) <= MOST_BYTES) return [text];
  if (scopes.length === 1) return [];
  const half = Math.ceil(scopes.length / 2);
  return [...freedMessages(scopes.slice(0, half)), ...freedMessages(scopes.slice(half))];
}

/** Passes a message on to the handlers. Anything else on the channel is ignored. */
export function hear(text: string, handlers: WatchHandlers): void {
  const heard = parsed(text);
  if (heard?.what === 'jobs') {
    const { key, name, due } = heard;
    const hint = key === undefined || name === undefined ? undefined : { key, name };
    handlers.wake('jobs', hint, due === undefined ? undefined : new Map(due));
  } else if (heard?.what === 'tasks') handlers.wake('tasks');
  else if (heard?.what === 'cancel') handlers.cancel();
  else if (heard?.what === 'news') handlers.news();
  else if (heard?.what === 'freed') handlers.freed(heard.scopes.map(([kind, name]) => ({ kind, name })));
}

export function parsed(text: string): Message | undefined {
  try {
    return JSON.parse(text) as Message;
  } catch {
    return undefined;
  }
}

/** Keys become free with each end of a job: the others hear of it this often at most. */
const KEYS_MS = 50;
/** Changes of the same moment share a notification. */
const TOLD_TOGETHER_MS = 10;
const EVERY_MS = 100;
const FOR_MS = 1_000;

/**
 * Wakes other instances. A transaction that the store opened is followed by one notification, after its commit. A
 * caller's own transaction carries the notification itself, or, with `notify: 'later'`, is followed by one every 100 ms
 * for a second after the insert: its commit is not seen here.
 */
export class Notifier {
  /** `notify: 'commit'`: a caller's transaction carries the notification itself. */
  readonly notifiesAtCommit: boolean;
  readonly #driver: Driver;
  readonly #names: Names;
  /** Jobs in transactions that the store itself opened. */
  readonly #awaited = new WeakMap<Queryable, readonly Waking[]>();
  readonly #keyed = new Set<string>();
  #keysTimer: Timer | undefined;
  #areKeysFree = false;
  #timer: Timer | undefined;
  #endsAt = 0;
  /** While false, nobody watches jobs, and changes are not told. Claims and peeks keep it current. */
  watched: boolean = false;
  readonly #changed = new Set<string>();
  #telling: Timer | undefined;

  constructor(driver: Driver, names: Names, ringsAtCommit: boolean) {
    this.#driver = driver;
    this.#names = names;
    this.notifiesAtCommit = ringsAtCommit;
  }

  /** Call after inserting jobs into a transaction that the store opened and that is still open. */
  afterCommit(transaction: Queryable, jobs: readonly Waking[]): void {
    this.#awaited.set(transaction, [...(this.#awaited.get(transaction) ?? []), ...jobs]);
  }

  /** Call after inserting jobs into a caller's own transaction that does not notify itself. */
  repeatedly(): void {
    this.#endsAt = performance.now() + FOR_MS;
    this.#timer ??= realTimer(EVERY_MS, () => this.#again());
  }

  /** Call after committing a transaction that the store opened. */
  committed(transaction: Queryable): void {
    const jobs = this.#awaited.get(transaction);
    this.#awaited.delete(transaction);
    if (jobs !== undefined) this.notify(wakeMessage(...jobs));
  }

  /** Best effort: an instance that misses it finds the work by polling. */
  notify(text: string): void {
    void this.#driver
      .query('select pg_notify($1::text, $2::text)::text as json', [this.#names.channel, text])
      .catch(() => undefined);
  }

  /** Names that this process claims by their keys. */
  claimsByKeys(names: readonly string[]): void {
    for (const name of names) this.#keyed.add(name);
  }

  /** Call when jobs have ended: keys of theirs may be free. */
  keysFreed(): void {
    if (this.#keyed.size === 0) return;
    this.#areKeysFree = true;
    if (this.#keysTimer === undefined) this.#tellOfKeys();
  }

  /** Call when jobs have left that were pending: one of them may have held its key. */
  left(jobs: readonly { readonly name: string; readonly limitKey?: string }[]): void {
    const names = new Set(jobs.flatMap(({ name, limitKey }) => (limitKey === undefined ? [] : [name])));
    if (names.size > 0) this.notify(keysMessage(names));
  }

  /** Tells watchers, if there are any, that these jobs have changed. Best effort: watchers also poll. */
  changed(ids: readonly string[]): void {
    if (!this.watched || ids.length === 0) return;
    for (const id of ids) this.#changed.add(id);
    this.#telling ??= realTimer(TOLD_TOGETHER_MS, () => this.#tell());
  }

  #tell(): void {
    this.#telling = undefined;
    const text = JSON.stringify({ what: 'changed', ids: [...this.#changed] } satisfies Message);
    this.#changed.clear();
    this.notify(Buffer.byteLength(text) <= MOST_BYTES ? text : message('changed'));
  }

  stop(): void {
    this.#keysTimer?.cancel();
    this.#keysTimer = undefined;
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#telling?.cancel();
    this.#telling = undefined;
    this.#changed.clear();
    this.#endsAt = 0;
  }

  #tellOfKeys(): void {
    this.#keysTimer = undefined;
    if (!this.#areKeysFree) return;
    this.#areKeysFree = false;
    this.notify(keysMessage(this.#keyed));
    this.#keysTimer = realTimer(KEYS_MS, () => this.#tellOfKeys());
  }

  #again(): void {
    this.#timer = undefined;
    this.notify(wakeMessage());
    if (performance.now() < this.#endsAt) this.#timer = realTimer(EVERY_MS, () => this.#again());
  }
}
