import type { PoolClient, PoolConfig } from 'pg';
import type { Driver, Queryable } from '../sql/connection/driver.js';
import { besideOf, type Beside } from './beside.js';
import { checkedOut } from './checked-out.js';
import type { PostgresClient, PostgresPool } from './client.js';
import { Connections } from './connections.js';
import { ConnectionErrors } from './connection-errors.js';
import { ListenConnection } from './listen-connection.js';
import { connectAlone, ownPool } from './own-pool.js';
import { Prepared } from './prepared.js';
import { inTransaction, limitedIn } from './transaction.js';

/**
 * A statement that gets no response within this time is given up. A shorter lease lowers the limit, down to
 * `SHORTEST_MS`.
 */
const STATEMENT_MS = 30_000;
const SHORTEST_MS = 5_000;

interface Parts<C extends PostgresClient> {
  readonly main: Connections<C>;
  /** Undefined if connections like those of the pool cannot be opened. */
  readonly beside: Beside | undefined;
  readonly listening: ListenConnection;
  readonly often?: (limitMs: () => number) => Queryable;
  readonly close: () => Promise<void>;
}

/** A driver on a pool that the store opens and closes. */
export function opened(url: string, size: number, listenUrl?: string): Driver {
  const { pool, end } = ownPool({ connectionString: url, max: size, application_name: 'tidemill' });
  const beside = besideOf({ connectionString: url, application_name: 'tidemill lease' });
  const remedy = 'raise `connections` of postgres()';
  const main = new Connections<PoolClient>(pool, {
    size,
    remedy,
    silent: () => beside.connections.distrust(),
  });
  beside.onSilence(() => main.distrust());
  return driverOf({
    main,
    beside,
    listening: earOf(beside, pool, listenUrl),
    often: (limitMs) => new Prepared(main, limitMs),
    close: async () => {
      await Promise.all([end(), beside.end()]);
    },
  });
}

/** Shared by the stores on one pool. */
interface Shared {
  readonly parts: Parts<PostgresClient>;
  readonly idle: ConnectionErrors;
  users: number;
}

const shared = new WeakMap<PostgresPool, Shared>();

/** A driver on the user's pool, which is never closed. Stores on the same pool share what is opened beside it. */
export function borrowed(pool: PostgresPool, listenUrl?: string): Driver {
  const known = shared.get(pool) ?? { parts: partsOf(pool), idle: new ConnectionErrors(pool), users: 0 };
  shared.set(pool, known);
  known.users += 1;
  const { parts, idle } = known;
  const close = async (): Promise<void> => {
    known.users -= 1;
    if (known.users > 0) return;
    shared.delete(pool);
    idle.close();
    await parts.close();
  };
  const listening = listenUrl === undefined ? parts.listening : earOf(parts.beside, pool, listenUrl);
  return {
    ...driverOf({ ...parts, listening, close }),
    listen: (channel, handlers) => idle.beside(handlers, (ours) => listening.listen(channel, ours)),
  };
}

function partsOf(pool: PostgresPool): Parts<PostgresClient> {
  const config = configOf(pool);
  const beside = config === undefined ? undefined : besideOf(config);
  const size = pool.options?.max ?? Infinity;
  const remedy = 'raise `max` of your pool';
  const main = new Connections(pool, { size, remedy, silent: () => beside?.connections.distrust() });
  beside?.onSilence(() => main.distrust());
  return { main, beside, listening: earOf(beside, pool), close: async () => beside?.end() };
}

/**
 * Returns the settings of a node-postgres pool with the password, which the pool hides from copies. Undefined for a
 * pool of another kind.
 */
function configOf({ options, totalCount }: PostgresPool): PoolConfig | undefined {
  if (options === undefined || totalCount === undefined) return undefined;
  return Object.defineProperties({}, Object.getOwnPropertyDescriptors(options));
}

function earOf(beside: Beside | undefined, pool: PostgresPool, listenUrl?: string): ListenConnection {
  if (listenUrl !== undefined) return new ListenConnection(() => connectAlone(listenUrl));
  return new ListenConnection(() => checkedOut<PostgresClient>(beside?.pool ?? pool));
}

function driverOf<C extends PostgresClient>({ main, beside, listening, often, close }: Parts<C>): Driver {
  let limitMs = STATEMENT_MS;
  const asking =
    (withinMs: () => number): Queryable['query'] =>
    (text, values) =>
      main.use((client) => client.query(text, values), withinMs());
  const query = asking(() => limitMs);
  return {
    query,
    prepared: often?.(() => limitMs) ?? { query },
    unhurried: { query: asking(() => Infinity) },
    vital: (withinMs) => ({
      query: (text, values) => {
        const ask = (client: PostgresClient): ReturnType<Queryable['query']> => client.query(text, values);
        return beside?.ask(main, ask, withinMs) ?? main.use(ask, withinMs);
      },
    }),
    transaction: (work, pace) => inTransaction(main, 'own', work, pace === 'unhurried' ? Infinity : limitMs),
    lend: (work) => inTransaction(main, 'lent', work, limitMs),
    limited: (transaction) => limitedIn(main, transaction, limitMs),
    listen: (channel, handlers) => listening.listen(channel, handlers),
    leaseOf: (leaseMs) => void (limitMs = Math.min(limitMs, Math.max(leaseMs, SHORTEST_MS))),
    shortage: () => main.shortage(),
    close,
  };
}
