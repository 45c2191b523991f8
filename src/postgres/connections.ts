import { AsyncLocalStorage } from 'node:async_hooks';
import { StoreError } from '../core/errors.js';
import type { Queryable } from '../sql/connection/driver.js';
import { sqlState } from '../sql/connection/errors.js';
import type { Shortage } from '../store/port.js';
import { checkedOut } from './checked-out.js';
import type { PostgresClient, PostgresPool } from './client.js';
import { answered, SilentError } from './silence.js';
import { ConnectionTurns, type Use } from './connection-turns.js';

export interface ConnectionsOptions {
  /** How many the pool has at most; Infinity where it does not say. */
  readonly size: number;
  /** How to get more of them, in words. */
  readonly remedy: string;
  /** A connection did not answer. */
  readonly silent?: () => void;
  readonly patience?: Patience;
}

/** How long is waited for a connection. */
interface Patience {
  /** A statement of our own takes milliseconds: if nothing is free for so long, something holds all connections. */
  readonly ownMs: number;
  /** A caller's transaction, from when the last one ended. */
  readonly lentMs: number;
  /** A transaction inside another one holds what others wait for. */
  readonly nestedMs: number;
}

const PATIENCE: Patience = { ownMs: 15_000, lentMs: 60_000, nestedMs: 10_000 };
/** Shorter waits are part of every busy spell. */
const SHORT_AFTER_MS = 1_000;

type PoolOf<C> = Pick<PostgresPool, 'totalCount' | 'idleCount'> & { connect(): Promise<C> };

/** Of a connection that is in use. */
interface Taken {
  readonly onError: (error: unknown) => void;
  /** What went wrong with it; undefined while it works. */
  readonly failure: () => unknown;
}

/** The server ended it, or nobody knows what state it is in. */
const isBroken = (error: unknown): boolean => /^(?:08|57P|XX)/u.test(sqlState(error) ?? '08');

/** A pool ends an idle connection politely: behind a network that has forgotten it, its socket would stay open. */
function cutOff(client: PostgresClient): void {
  const { connection } = client as { connection?: { stream?: { destroy?: () => void } } };
  connection?.stream?.destroy?.();
}

/**
 * The connections of one pool: handed out in turn, within a limit of time, and with an error that says who has them. One that does
 * not answer is replaced, and with it those that were made before.
 */
export class Connections<C extends PostgresClient = PostgresClient> {
  readonly #pool: PoolOf<C>;
  readonly #options: ConnectionsOptions;
  readonly #turns: ConnectionTurns;
  /** Who waits, be it here or in the pool itself, the longest first. */
  readonly #waiting = new Set<{ readonly use: Use; readonly since: number }>();
  readonly #inside = new AsyncLocalStorage<true>();
  readonly #seenAt = new WeakMap<C, number>();
  readonly #taken = new WeakMap<C, Taken>();
  readonly #patience: Patience;
  /** Connections that are in use, and not only promised. */
  readonly #held: Record<Use, number> = { own: 0, lent: 0 };
  #distrustedAt = -Infinity;

  constructor(pool: PoolOf<C>, options: ConnectionsOptions) {
    this.#pool = pool;
    this.#options = options;
    this.#turns = new ConnectionTurns(options.size);
    this.#patience = options.patience ?? PATIENCE;
  }

  /** Connections that were made before now are replaced as they are used next. */
  distrust(): void {
    this.#distrustedAt = performance.now();
  }

  /** Undefined while nobody has waited for long. */
  shortage(): Shortage | undefined {
    const now = performance.now();
    const [longest] = this.#waiting;
    const waitedMs = longest === undefined ? 0 : now - longest.since;
    if (waitedMs < SHORT_AFTER_MS) return undefined;
    const own = [...this.#waiting].find(({ use }) => use === 'own');
    return { stuckMs: own === undefined ? 0 : now - own.since, text: this.#shortOf(waitedMs) };
  }

  /** Work on a connection of its own, which is given up where no answer comes within the limit. */
  async use<T>(work: (client: C) => Promise<T>, limitMs: number): Promise<T> {
    return this.ask(await this.take('own', this.#patience.ownMs), work, limitMs);
  }

  /** The same on a connection that was taken before; it goes back afterwards. */
  async ask<T>(client: C, work: (client: C) => Promise<T>, limitMs: number): Promise<T> {
    let broken = false;
    try {
      return await answered(work(client), limitMs);
    } catch (error) {
      broken = isBroken(error);
      if (error instanceof SilentError) this.#silent();
      throw error;
    } finally {
      this.#giveBack('own', client, broken);
    }
  }

  /** For a transaction. `work` says whether the connection may be used again. */
  async hold<T>(
    use: Use,
    work: (client: C) => Promise<{ readonly broken: boolean; readonly end: () => T }>,
  ): Promise<T> {
    const { ownMs, lentMs, nestedMs } = this.#patience;
    const callersMs = this.#inside.getStore() === true ? nestedMs : lentMs;
    const client = await this.take(use, use === 'own' ? ownMs : callersMs);
    let broken = true;
    try {
      const done = await (use === 'own' ? work(client) : this.#inside.run(true, () => work(client)));
      ({ broken } = done);
      return done.end();
    } finally {
      this.#giveBack(use, client, broken);
    }
  }

  /** The same handle within a limit. If it is one of these connections, it is replaced after a silence. */
  limited(handle: Queryable, limitMs: number): Queryable {
    const query: Queryable['query'] = (text, values) =>
      answered(handle.query(text, values), limitMs).catch((error: unknown) => {
        const taken = error instanceof SilentError ? this.#taken.get(handle as C) : undefined;
        taken?.onError(error);
        if (taken !== undefined) this.#silent();
        throw error;
      });
    return { query };
  }

  /** The error of a connection in use that did not answer. */
  silenceOf(client: C): SilentError | undefined {
    const failure = this.#taken.get(client)?.failure();
    return failure instanceof SilentError ? failure : undefined;
  }

  async take(use: Use, patienceMs: number): Promise<C> {
    const wait = { use, since: performance.now() };
    this.#waiting.add(wait);
    const waited = (): number => performance.now() - wait.since;
    try {
      if (!(await this.#turns.take(use, patienceMs))) throw this.#exhausted(waited());
      const leftMs = Math.max(patienceMs - waited(), SHORT_AFTER_MS);
      const client = await this.#connect(leftMs).catch((error: unknown) => {
        this.#turns.giveBack(use);
        throw error;
      });
      this.#held[use] += 1;
      return client;
    } finally {
      this.#waiting.delete(wait);
    }
  }

  async #connect(limitMs: number): Promise<C> {
    for (;;) {
      const client = await this.#checkOut(limitMs);
      const seenAt = this.#seenAt.get(client);
      if (seenAt === undefined) this.#seenAt.set(client, performance.now());
      if (seenAt === undefined || seenAt > this.#distrustedAt) return client;
      this.#release(client, true);
      cutOff(client);
    }
  }

  async #checkOut(limitMs: number): Promise<C> {
    let failure: unknown;
    const taken: Taken = { onError: (error) => void (failure ??= error), failure: () => failure };
    const coming = checkedOut<C>(this.#pool, taken.onError);
    void coming.then(
      (client) => this.#taken.set(client, taken),
      () => undefined,
    );
    return answered(coming, limitMs).catch((error: unknown) => {
      if (!(error instanceof SilentError)) throw error;
      // It may still come, when somebody has no more use for it.
      void coming.then(
        (client) => this.#release(client, false),
        () => undefined,
      );
      throw this.#exhausted(limitMs);
    });
  }

  #giveBack(use: Use, client: C, broken: boolean): void {
    this.#held[use] -= 1;
    this.#turns.giveBack(use);
    this.#release(client, broken);
  }

  #release(client: C, broken: boolean): void {
    const taken = this.#taken.get(client);
    this.#taken.delete(client);
    if (taken !== undefined) client.removeListener('error', taken.onError);
    client.release(broken || taken?.failure() !== undefined);
  }

  #silent(): void {
    this.distrust();
    this.#options.silent?.();
  }

  #exhausted(waitedMs: number): StoreError {
    return new StoreError(`${this.#shortOf(waitedMs)} Nothing was sent to the database.`, {
      transient: true,
    });
  }

  #shortOf(waitedMs: number): string {
    const { own, lent } = this.#held;
    const { size, remedy } = this.#options;
    const { totalCount, idleCount = 0 } = this.#pool;
    const elsewhere = totalCount === undefined ? 0 : Math.max(0, totalCount - idleCount - own - lent);
    return (
      `No connection to the database was free for ${(waitedMs / 1_000).toFixed(1)} s: of ${size === Infinity ? 'the' : String(size)} ` +
      `connections, withTransaction holds ${String(lent)}, other calls of Tidemill use ${String(own)}, ` +
      `and your own code holds ${String(elsewhere)}; ${String(this.#waiting.size)} calls wait. ` +
      `Keep transactions short, give calls inside a transaction its handle ({ transaction }), or ${remedy}.`
    );
  }
}
