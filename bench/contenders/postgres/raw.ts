import { randomUUID } from 'node:crypto';
import pg, { type Pool } from 'pg';
import { newId } from '../../../src/sql/jobs/enqueue/ids.js';
import {
  CLAIM,
  COMPLETE,
  DELETE,
  drained,
  dropOtherIndexes,
  INSERT,
  INSERT_MANY,
  insertJobs,
  makeSchema,
} from '../../lib/rows.js';
import type { Contender, Payload, Place } from '../contender.js';
import { CONNECTIONS, type PostgresModule } from './contender.js';

const ALL = 'all of Tidemill';
const ONE = 'primary key and the one of the claim';

const variants = {
  all100: { size: 100, indexes: ALL, completes: 'updates' },
  all500: { size: 500, indexes: ALL, completes: 'updates' },
  claim100: { size: 100, indexes: ONE, completes: 'updates' },
  claim500: { size: 500, indexes: ONE, completes: 'updates' },
  /** Like queues that keep no finished jobs. */
  'claim500 deletes': { size: 500, indexes: ONE, completes: 'deletes' },
  /** A notification within each insert, whose arrival starts the handler. */
  notify: { size: 1, indexes: ALL, completes: 'never' },
};

const COMPLETES = { updates: COMPLETE, deletes: DELETE };

/** Batched claims and set-based completion, one batch after the other, both prepared. */
async function work(
  pool: Pool,
  { size, completes }: { size: number; completes: 'updates' | 'deletes' },
  run: (data: Payload) => void,
): Promise<void> {
  const client = await pool.connect();
  for (;;) {
    const token = randomUUID();
    const { rows } = await client.query<{ id: string; data: Payload }>({
      name: 'claim',
      text: CLAIM,
      values: [size, token],
    });
    if (rows.length === 0) break;
    for (const row of rows) run(row.data);
    await client.query({
      name: 'complete',
      text: COMPLETES[completes],
      values: [rows.map(({ id }) => id), token],
    });
  }
  client.release();
}

const RINGING = `with stored as (${INSERT} returning data) select pg_notify('raw', data::text) from stored`;

/** Makes the schema once, even if two processes start at the same time. */
async function makeOnce(pool: Pool, make: () => Promise<void>): Promise<void> {
  const client = await pool.connect();
  await client.query('select pg_advisory_lock(1)');
  const { rows } = await client.query(`select to_regclass('tidemill.jobs') as made`);
  if (rows[0].made === null) await make();
  await client.query('select pg_advisory_unlock(1)');
  client.release();
}

/** The plain driver: no library can be faster with the same statements. It retries nothing and recovers nothing. */
async function open({ uri, variant }: Place): Promise<Contender> {
  const { size, indexes, completes } = variants[variant as keyof typeof variants];
  const pool = new pg.Pool({ connectionString: uri, max: CONNECTIONS });
  await makeOnce(pool, async () => {
    await makeSchema(pool, uri);
    if (indexes === ONE) await dropOtherIndexes(pool);
  });
  const listener = new pg.Client({ connectionString: uri });
  const listen = async (run: (data: Payload) => void): Promise<void> => {
    await listener.connect();
    listener.on('notification', ({ payload = '' }) => run(JSON.parse(payload) as Payload));
    await listener.query('listen raw');
  };
  const text = variant === 'notify' ? RINGING : INSERT;
  return {
    enqueue: (data) =>
      pool.query({ name: 'insert', text, values: [newId(Date.now()), JSON.stringify(data)] }),
    enqueueMany: (data) =>
      pool.query({
        name: 'many',
        text: INSERT_MANY,
        values: [data.map(() => newId(Date.now())), data.map((one) => JSON.stringify(one))],
      }),
    fill: (count) => insertJobs(pool, count),
    start: async (run) => {
      if (variant === 'notify') await listen(run);
      else if (completes !== 'never')
        void work(pool, { size, completes: completes as 'updates' | 'deletes' }, run);
    },
    finished: () => drained(pool),
    stop: async () => {
      if (variant === 'notify') await listener.end();
      await pool.end();
    },
  };
}

export const contender: PostgresModule = {
  title: 'raw driver',
  variants,
  packages: [],
  pg: () => Promise.resolve(pg),
  open,
};
