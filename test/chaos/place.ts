/** The worker's side of a ground: a store, and a way to write an effect together with the job's completion. */
import { MongoClient } from 'mongodb';
import pg from 'pg';
import type { Store } from '../../src/store/port.js';
import { mongodb } from '../../src/mongodb/index.js';
import { postgres } from '../../src/postgres/index.js';
import { sleep } from './ground.js';

interface ExactJob {
  readonly id: string;
  readonly ms: number;
  readonly complete: (transaction: never) => Promise<void>;
}

export interface Place {
  readonly store: Store<never>;
  readonly exactly: (job: ExactJob) => Promise<void>;
  readonly close: () => Promise<void>;
}

export const placeAt = (address: string): Place =>
  address.startsWith('postgres:') ? onPostgres(address) : onMongodb(address);

function onMongodb(uri: string): Place {
  const client = new MongoClient(uri);
  return {
    store: mongodb({ client }) as unknown as Store<never>,
    exactly: ({ id, ms, complete }) =>
      client.withSession((session) =>
        session.withTransaction(
          async () => {
            await client.db().collection<{ job: string }>('effects').insertOne({ job: id }, { session });
            await sleep(ms);
            await complete(session as never);
          },
          { writeConcern: { w: 'majority' } },
        ),
      ),
    close: () => client.close(),
  };
}

/** A pool that the user's code and the store share. */
function onPostgres(url: string): Place {
  const pool = new pg.Pool({ connectionString: url, max: 8, application_name: 'worker' });
  pool.on('error', () => undefined);
  const store = postgres({ pool });
  return {
    store: store as unknown as Store<never>,
    exactly: ({ id, ms, complete }) =>
      store.transaction(async (transaction) => {
        await transaction.query('insert into effects (job) values ($1)', [id]);
        await sleep(ms);
        await complete(transaction as never);
      }),
    close: () => pool.end(),
  };
}
