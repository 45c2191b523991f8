import type { PoolClient, PoolConfig } from 'pg';
import type { Driver, Queryable } from '../sql/connection/driver.js';
import { besideOf, type Beside } from './beside.js';
import { checkedOut } from './checked-out.js';
import type { PostgresClient, PostgresPool } from './client.js';
import { Connections } from './connections.js';
import { ListenConnection } from './listen-connection.js';
import { connectAlone, ownPool } from './own-pool.js';
import { Prepared } from './prepared.js';
import { inTransaction, limitedIn } from './transaction.js';

/** A statement that is not answered within so long is given up; within the lease where that is shorter, but not at once. */
const STATEMENT_MS = 30_000;
const SHORTEST_MS = 5_000;

/** The parts of a driver. */
interface Parts<C extends PostgresClient> {
  readonly main: Connections<C>;
  /** Undefined where nobody knows how to make a connection like those of the pool. */
  readonly beside: Beside | undefined;
  readonly listening: ListenConnection;
  readonly often?: (limitMs: () => number) => Queryable;
  readonly close: () => Promise<void>;
}

/** A pool of our own. */
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

/** What stores on the same pool share. */
interface Shared {
  readonly parts: Parts<PostgresClient>;
  users: number;
}

const shared = new WeakMap<PostgresPool, Shared>();

/** A pool of the user's own, which is never closed. Several stores on it share what is opened beside it. */
export function borrowed(pool: PostgresPool, listenUrl?: string): Driver {
  const known = shared.get(pool) ?? { parts: partsOf(pool), users: 0 };
  shared.set(pool, known);
  known.users += 1;
  const { parts } = known;
  const close = async (): Promise<void> => {
    known.users -= 1;
    if (known.users > 0) return;
    shared.delete(pool);
    await parts.close();
  };
  const listening = listenUrl === undefined ? parts.listening : earOf(parts.beside, pool, listenUrl);
  return driverOf({ ...parts, listening, close });
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

/** How a pool of node-postgres makes its connections, with the password, which it hides from copies. */
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
