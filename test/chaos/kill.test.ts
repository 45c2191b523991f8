import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, inject, it } from 'vitest';
import { mongodb } from '../../src/mongodb/index.js';
import { postgres } from '../../src/postgres/index.js';
import type { Store } from '../../src/store/port.js';
import { aMill, until } from '../support/mills.js';
import { forkScript } from '../support/scripts.js';
import { freshUri, rawPool } from '../support/stores.js';
import { readLines } from './journal.js';

/** The lease of the process that is killed; long enough that it does not expire before the kill. */
const LEASE_MS = 3_000;
const WORKER = new URL('worker.ts', import.meta.url);
const pool = rawPool();

/** A database of its own for each test, with the address that worker processes get. */
const stores: Readonly<Record<string, () => Promise<{ address: string; store: Store }>>> = {
  mongodb: () => {
    const address = freshUri();
    return Promise.resolve({ address, store: mongodb({ uri: address }) });
  },
  postgres: async () => {
    const name = `test_kill_${String(Date.now())}`;
    await pool.query(`create database ${name}`);
    const address = inject('postgresUrl').replace(/postgres$/u, name);
    return { address, store: postgres({ url: address }) };
  },
};

it.each(Object.keys(stores))(
  'reruns the jobs of a process killed with SIGKILL on another instance (%s)',
  async (kind) => {
    const { address, store } = (await stores[kind]?.()) as { address: string; store: Store };
    const file = join(mkdtempSync(join(tmpdir(), 'tidemill-kill-')), 'effects.log');
    writeFileSync(file, '');
    const child = forkScript(WORKER, [address, file, String(LEASE_MS)], { stdio: 'ignore' });
    // This instance gives others as much time to come back, so its lease is not much longer.
    const mill = aMill(store, { leaseDuration: 2 * LEASE_MS });
    const jobs = await mill.enqueueMany(
      Array.from({ length: 6 }, () => ({ name: 'long', data: { ms: 60_000, failures: 0 } })),
    );
    const started = await until('the child runs all of them', () => {
      const lines = readLines(file).filter((line) => line.what === 'start');
      return lines.length === jobs.length && lines;
    });
    expect(new Set(started.map((line) => line.pid))).toEqual(new Set([child.pid]));
    const attempts: number[] = [];
    mill.job('long', (job) => attempts.push(job.attempt));
    await mill.start();
    child.kill('SIGKILL');
    await Promise.all(jobs.map((job) => mill.jobs.result(job.id)));
    expect(attempts).toEqual(jobs.map(() => 2));
    for (const job of jobs) {
      expect((await mill.jobs.get(job.id))?.history?.map((entry) => entry.status)).toEqual([
        'crashed',
        'completed',
      ]);
    }
  },
);

const BEFORE_THE_SERVER_MS = 40_000;

it('reruns a job elsewhere after the lease when its process is killed inside a MongoDB transaction', async () => {
  const address = freshUri();
  const file = join(mkdtempSync(join(tmpdir(), 'tidemill-kill-')), 'effects.log');
  writeFileSync(file, '');
  const child = forkScript(WORKER, [address, file, '1000'], { stdio: 'ignore' });
  const mill = aMill(mongodb({ uri: address }), { leaseDuration: '1s' });
  const job = await mill.enqueue('hostage', { ms: 120_000, failures: 0 });
  await until('the child has completed it, and not committed', () =>
    readLines(file).some(({ what }) => what === 'start'),
  );
  mill.job('hostage', ({ attempt }) => attempt);
  await mill.start();
  child.kill('SIGKILL');
  // The server itself ends such a transaction after a minute, so this limit must be shorter.
  await until(
    'it has run here',
    async () => (await mill.jobs.get(job.id))?.status === 'completed',
    BEFORE_THE_SERVER_MS,
  );
  expect(await mill.jobs.result(job.id)).toBe(2);
});
