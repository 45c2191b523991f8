import { StoreError } from '../core/errors.js';
import { CallContext } from '../core/call-context.js';
import type { Queryable } from '../sql/connection/driver.js';
import { sqlState } from '../sql/connection/errors.js';
import type { Shortage } from '../store/port.js';
import { checkedOut } from './checked-out.js';
import type { PostgresClient, PostgresPool } from './client.js';
import { answered, SilentError } from './silence.js';
import { ConnectionTurns, type Use } from './connection-turns.js';

export interface ConnectionsOptions {
  /** How many connections the pool has at most; Infinity if it does not say. */
  readonly size: number;
  /** How to get more connections, as text. */
  readonly remedy: string;
  /** Called when a connection did not respond. */
  readonly silent?: () => void;
  readonly patience?: Patience;
}

/** How long to wait for a connection. */
interface Patience {
  /**
   * The store's own statements take milliseconds: if nothing is free for this long, something holds all connections.
   */
  readonly ownMs: number;
  /** For a caller's transaction, counted from when the last one ended. */
  readonly lentMs: number;
  /** For a transaction inside another one, which itself holds what others wait for. */
  readonly nestedMs: number;
}

const PATIENCE: Patience = { ownMs: 15_000, lentMs: 60_000, nestedMs: 10_000 };
/** Shorter waits are normal under load. */
const SHORT_AFTER_MS = 1_000;

type PoolOf<C> = Pick<PostgresPool, 'totalCount' | 'idleCount'> & { connect(): Promise<C> };

/** State of a connection in use. */
interface Taken {
  readonly onError: (error: unknown) => void;
  /** The first error of the connection; undefined while it works. */
  readonly failure: () => unknown;
}

/** The server ended the connection, or its state is unknown. */
const isBroken = (error: unknown): boolean => /^(?:08|57P|XX)/u.test(sqlState(error) ?? '08');

/** A pool ends a connection gracefully. If the network has forgotten the connection, its socket would stay open. */
function cutOff(client: PostgresClient): void {
  const { connection } = client as { connection?: { stream?: { destroy?: () => void } } };
  connection?.stream?.destroy?.();
}

/**
 * The connections of one pool. Hands them out in turn and within a time limit; when none is free, the error says what
 * holds them. A connection that does not respond is replaced, and so are those that were opened before.
 */
export class Connections<C extends PostgresClient = PostgresClient> {
  readonly #pool: PoolOf<C>;
  readonly #options: ConnectionsOptions;
  readonly #turns: ConnectionTurns;
  /** Calls that wait, here or in the pool itself, the longest first. */
  readonly #waiting = new Set<{ readonly use: Use; readonly since: number }>();
  readonly #inside = new CallContext<true>();
  readonly #seenAt = new WeakMap<C, number>();
  readonly #taken = new WeakMap<C, Taken>();
  readonly #patience: Patience;
  /** Connections that are in use, not just granted. */
  readonly #held: Record<Use, number> = { own: 0, lent: 0 };
  #distrustedAt = -Infinity;

  constructor(pool: PoolOf<C>, options: ConnectionsOptions) {
    this.#pool = pool;
    this.#options = options;
    this.#turns = new ConnectionTurns(options.size);
    this.#patience = options.patience ?? PATIENCE;
  }

  /** Connections that were opened before now are replaced when they are next used. */
  distrust(): void {
    this.#distrustedAt = performance.now();
  }

  /** Undefined unless a call has waited for at least a second. */
  shortage(): Shortage | undefined {
    const now = performance.now();
    const [longest] = this.#waiting;
    const waitedMs = longest === undefined ? 0 : now - longest.since;
    if (waitedMs < SHORT_AFTER_MS) return undefined;
    const own = [...this.#waiting].find(({ use }) => use === 'own');
    return { stuckMs: own === undefined ? 0 : now - own.since, text: this.#shortOf(waitedMs) };
  }

  /** Runs `work` on a connection, which is given up if no response comes within the limit. */
  async use<T>(work: (client: C) => Promise<T>, limitMs: number): Promise<T> {
    return this.ask(await this.take('own', this.#patience.ownMs), work, limitMs);
  }

  /** The same on a connection that was taken before; it is given back afterwards. */
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

  /** Holds a connection for a transaction. `work` tells whether the connection can be used again. */
  async hold<T>(
    use: Use,
    work: (client: C) => Promise<{ readonly broken: boolean; readonly end: () => T }>,
  ): Promise<T> {
    const { ownMs, lentMs, nestedMs } = this.#patience;
    const callersMs = this.#inside.value === true ? nestedMs : lentMs;
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

  /** Returns the handle with a time limit. One of these connections that does not respond is replaced. */
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

  /** Returns the error of a connection in use that did not respond. */
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
      // The connection may still come, once its user gives it back. It then returns to the pool.
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
