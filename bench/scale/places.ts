/** The servers that runs at scale use, and a store of the built library on each. */
import { startMongo, startPostgres } from '@tidemill/servers';
import { MongoClient } from 'mongodb';
import pg from 'pg';
import type { Store } from '../../src/store/port.js';
import { built } from '../lib/built.js';
import { cpuSeconds } from '../lib/cpu.js';
import { documents, type Kind } from '../lib/documents.js';
import { FINISHED, FUTURE } from '../lib/rows.js';
import { totalStatements } from '../lib/statements.js';
import { countingBytes } from '../lib/traffic.js';

export interface Place {
  readonly name: 'mongodb' | 'postgres';
  /** Every call returns a store with connections of its own, on the same database. */
  store(options?: { readonly connections?: number }): Promise<Store>;
  /** Writes jobs by the shortest way, as the library would have left them. */
  fill(kind: Exclude<Kind, 'due'>, count: number): Promise<void>;
  /** Brings statistics up to date and writes everything to disk. */
  settle(): Promise<void>;
  /** CPU seconds that the server has used so far. */
  cpu(): number;
  /** Commands or statements that the server was sent so far, and the bytes that it has answered. */
  traffic(): Promise<{ readonly statements: number; readonly bytesOut: number }>;
  [Symbol.asyncDispose](): Promise<void>;
}

const BATCH = 10_000;

/** Calls `write` with the sizes of batches until `count` is reached, and shows how far it is. */
async function inBatches(
  what: string,
  count: number,
  write: (size: number) => Promise<unknown>,
): Promise<void> {
  for (let done = 0; done < count; done += BATCH) {
    await write(Math.min(BATCH, count - done));
    process.stderr.write(`\r${what}: ${done + BATCH} of ${count}`);
  }
  process.stderr.write('\n');
}

async function onMongodb(): Promise<Place> {
  const server = await startMongo();
  const client = await new MongoClient(server.uri).connect();
  const { mongodb } = await built('mongodb');
  const uri = server.uri.replace('/?', '/scale?');
  return {
    name: 'mongodb',
    store: ({ connections = 4 } = {}) =>
      Promise.resolve(mongodb({ uri: `${uri}&maxPoolSize=${connections}` })),
    fill: async (kind, count) => {
      const jobs = client.db('scale').collection('tidemill_jobs');
      const batches = documents(count, kind, BATCH);
      await inBatches(kind, count, async () => {
        const { value } = batches.next() as { value: object[] };
        await jobs.insertMany(value, { ordered: false, writeConcern: { w: 1, journal: false } });
      });
    },
    settle: async () => {
      await client.db('admin').command({ fsync: 1 });
    },
    cpu: () => cpuSeconds(server.members[0]?.pid),
    traffic: async () => {
      const { network } = await client.db('admin').command({ serverStatus: 1 });
      return { statements: Number(network.numRequests), bytesOut: Number(network.bytesOut) };
    },
    [Symbol.asyncDispose]: async () => {
      await client.close();
      await server[Symbol.asyncDispose]();
    },
  };
}

async function onPostgres(): Promise<Place> {
  // The server counts neither bytes nor statements; all of its clients are in this process.
  const received = countingBytes();
  const sent = totalStatements(pg);
  const server = await startPostgres({ settings: { max_connections: '500' } });
  const pool = new pg.Pool({ connectionString: server.url, max: 2 });
  const { postgres } = await built('postgres');
  const { rows } = await pool.query<{ pid: string }>(
    `select split_part(pg_read_file('postmaster.pid'), chr(10), 1) as pid`,
  );
  const texts = { finished: FINISHED, future: FUTURE };
  return {
    name: 'postgres',
    store: ({ connections = 4 } = {}) => Promise.resolve(postgres({ url: server.url, connections })),
    fill: (kind, count) =>
      inBatches(kind, count, async (size) => {
        await pool.query(texts[kind], [size]);
      }),
    settle: async () => {
      await pool.query('vacuum analyze');
      await pool.query('checkpoint');
    },
    cpu: () => cpuSeconds(Number(rows[0]?.pid)),
    traffic: () => Promise.resolve({ statements: sent(), bytesOut: received() }),
    [Symbol.asyncDispose]: async () => {
      await pool.end();
      await server[Symbol.asyncDispose]();
    },
  };
}

export const PLACES = { mongodb: onMongodb, postgres: onPostgres } as const;
