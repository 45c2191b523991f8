import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PGlite } from '@electric-sql/pglite';
import { expect, inject, it } from 'vitest';
import { Tidemill } from '../../src/index.js';
import { until } from '../support/mills.js';
import { forkScript } from '../support/scripts.js';
import { fillEmbeddedFolder, freshUri, rawClient, rawPool } from '../support/stores.js';
import { past } from './shared/document-fixtures.js';
import { aName } from './tables.js';

const LOCK_MS = 3_000;
const COUNT = 5;
const ATTEMPTS = 2;
const client = rawClient(inject('mongoUri'));
const pool = rawPool();

interface Target {
  readonly url: string;
  readonly collection: string;
  /** The number of documents that are done. */
  readonly done: () => Promise<number>;
}

const CREATE = (table: string): string =>
  `create table ${table} (id text primary key, "sleepUntil" timestamptz, "scheduleFailure" jsonb)`;
const INSERT = (table: string): string =>
  `insert into ${table} select n::text, now() from generate_series(1, ${String(COUNT)}) n`;
const DONE = (table: string): string => `select 1 from ${table} where "sleepUntil" is null`;

const targets: Readonly<Record<string, () => Promise<Target>>> = {
  mongodb: async () => {
    const url = freshUri();
    const documents = client.db(new URL(url).pathname.slice(1)).collection<{ _id: string }>('reminders');
    await documents.insertMany(
      Array.from({ length: COUNT }, () => ({ _id: randomUUID(), sleepUntil: past() })),
    );
    return { url, collection: 'reminders', done: () => documents.countDocuments({ sleepUntil: null }) };
  },
  postgres: async () => {
    const name = aName();
    await pool.query(`create database ${name}`);
    const url = inject('postgresUrl').replace(/postgres$/u, name);
    const own = rawPool({ connectionString: url });
    await own.query(CREATE('reminders'));
    await own.query(INSERT('reminders'));
    return {
      url,
      collection: 'reminders',
      done: async () => (await own.query(DONE('reminders'))).rows.length,
    };
  },
};

function worker({ url, collection }: Target, concurrency: number, attempts?: number) {
  const args = [
    url,
    collection,
    String(LOCK_MS),
    String(concurrency),
    ...(attempts === undefined ? [] : [String(attempts)]),
  ];
  const child = forkScript(new URL('worker.ts', import.meta.url), args, {
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  });
  const running: string[] = [];
  child.on('message', (id: string) => running.push(id));
  return { child, running };
}

/** Runs the documents of a killed process in another one. */
async function survive(target: Target, concurrency: number): Promise<void> {
  const { child, running } = worker(target, concurrency);
  await until('the child runs some', () => running.length === concurrency);
  const gone = once(child, 'exit');
  child.kill('SIGKILL');
  await gone;
  const mill = new Tidemill({ store: target.url, logger: false });
  const ran: string[] = [];
  mill.documents({
    collection: target.collection,
    lockDuration: LOCK_MS,
    onDocument: (_document, { job }) => void ran.push(String(job.id)),
  });
  await mill.start();
  await until('all are done', async () => (await target.done()) === COUNT);
  await mill.stop();
  expect(new Set(ran).size).toBe(COUNT);
  expect(ran).toHaveLength(COUNT);
  expect(running.every((id) => ran.includes(id))).toBe(true);
}

it.each(Object.keys(targets).flatMap((kind) => [1, 3].map((concurrency) => [kind, concurrency] as const)))(
  'another process finishes the documents of a process killed with SIGKILL (%s, %i at once)',
  async (kind, concurrency) => {
    await survive(await targets[kind]!(), concurrency);
  },
);

it('documents that kill their process end after maxAttempts, with a retry policy', async () => {
  const target = await targets['mongodb']!();
  let deaths = 0;
  // Start one process after the other until no document is left to run.
  while ((await target.done()) < COUNT) {
    expect(deaths).toBeLessThanOrEqual(COUNT * ATTEMPTS);
    const { child } = worker(target, COUNT, ATTEMPTS);
    const gone = once(child, 'exit');
    await until(
      'it is dead, or all are over',
      async () => child.signalCode !== null || (await target.done()) === COUNT,
    );
    child.kill('SIGKILL');
    await gone;
    deaths += 1;
  }
  expect(deaths).toBeGreaterThanOrEqual(ATTEMPTS);
}, 180_000);

it('the next process finishes the documents of a process killed with SIGKILL (embedded)', async () => {
  const dir = join(mkdtempSync(join(tmpdir(), 'tidemill-kill-')), 'data');
  await fillEmbeddedFolder(dir);
  const before = await PGlite.create(dir);
  await before.exec(`${CREATE('reminders')}; ${INSERT('reminders')}`);
  await before.close();
  const target = {
    url: `file:${dir}`,
    collection: 'reminders',
    // Only the one process that has the folder open could answer this.
    done: () => Promise.resolve(0),
  };
  const { child, running } = worker(target, 2);
  await until('the child runs some', () => running.length === 2);
  const gone = once(child, 'exit');
  child.kill('SIGKILL');
  await gone;
  const mill = new Tidemill({ store: target.url, logger: false });
  const ran = new Set<string>();
  const schedule = mill.documents({
    collection: 'reminders',
    lockDuration: LOCK_MS,
    onDocument: (_document, { job }) => void ran.add(String(job.id)),
  });
  await mill.start();
  await until('all have run', () => ran.size === COUNT && !schedule.isProcessing());
  await mill.stop();
  const after = await PGlite.create(dir);
  expect((await after.query(DONE('reminders'))).rows).toHaveLength(COUNT);
  await after.close();
});
