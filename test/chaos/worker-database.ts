/**
 * The worker's side of a database: a store, and a way to write an effect in the same transaction that completes the work.
 */
import { MongoClient } from 'mongodb';
import pg from 'pg';
import type { Store } from '../../src/store/port.js';
import { mongodb } from '../../src/mongodb/index.js';
import { postgres } from '../../src/postgres/index.js';

/** Runs inside one transaction; `effect` writes there, too. */
type Exact = (transaction: never, effect: (what: string) => Promise<unknown>) => Promise<void>;

export interface WorkerDatabase {
  readonly store: Store<never>;
  readonly exactly: (work: Exact) => Promise<void>;
  /** Takes every connection of the pool for a moment. Absent if another program does so. */
  readonly useUp?: () => Promise<void>;
  readonly close: () => Promise<void>;
}

/** Less than a lease, so that no lease is lost. */
const USED_UP_MS = 1_000;
const POOL_SIZE = 6;

export const workerDatabaseAt = (address: string): WorkerDatabase =>
  address.startsWith('postgres:') ? onPostgres(address) : onMongodb(address);

function onMongodb(uri: string): WorkerDatabase {
  const client = new MongoClient(uri, { maxPoolSize: POOL_SIZE });
  const effects = client.db().collection<{ what: string }>('effects');
  return {
    store: mongodb({ client }) as unknown as Store<never>,
    exactly: (work) =>
      client.withSession((session) =>
        session.withTransaction(
          () => work(session as never, (what) => effects.insertOne({ what }, { session })),
          { writeConcern: { w: 'majority' } },
        ),
      ),
    useUp: async () => {
      const sleep = (): Promise<unknown> =>
        client.db('admin').command({ sleep: 1, lock: 'none', millis: USED_UP_MS });
      await Promise.allSettled(Array.from({ length: POOL_SIZE }, sleep));
    },
    close: () => client.close(),
  };
}

/** A pool that user code and the store share, and that the handlers of `exact` jobs can exhaust. */
function onPostgres(url: string): WorkerDatabase {
  const pool = new pg.Pool({ connectionString: url, max: POOL_SIZE, application_name: 'worker' });
  pool.on('error', () => undefined);
  const store = postgres({ pool });
  return {
    store: store as unknown as Store<never>,
    exactly: (work) =>
      store.transaction((transaction) =>
        work(transaction as never, (what) =>
          transaction.query('insert into effects (what) values ($1)', [what]),
        ),
      ),
    close: () => pool.end(),
  };
}
