import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { embedded } from '../../src/embedded/index.js';
import { aMill, until } from '../support/mills.js';
import { forkScript } from '../support/scripts.js';
import { fillEmbeddedFolder } from '../support/stores.js';
import { random } from './chaos-database.js';
import { readLines, writeLine, type Line } from './journal.js';
import { violations } from './judge.js';

const KILLS = 4;
const LEASE_MS = 30_000;
const WORKER = new URL('embedded-worker.ts', import.meta.url);
const count = (lines: readonly Line[], what: Line['what']): number =>
  lines.filter((line) => line.what === what).length;

/** Lets a process work on the folder for a while, then kills it in the middle of its work. */
async function workAndDie(dir: string, file: string, round: number): Promise<void> {
  const before = count(readLines(file), 'settled');
  const child = forkScript(WORKER, [dir, file, String(round)], { stdio: 'ignore' });
  const exited = new Promise((resolve) => child.once('exit', resolve));
  const enough = before + 10 + random(60);
  await until('it has done something', () => count(readLines(file), 'settled') >= enough);
  writeLine(file, { what: 'kill', pid: child.pid ?? 0 });
  child.kill('SIGKILL');
  await exited;
}

it('an embedded database loses no job and runs no effect twice while its process is killed repeatedly', async () => {
  const base = mkdtempSync(join(tmpdir(), 'tidemill-chaos-'));
  const [dir, file] = [join(base, 'data'), join(base, 'effects.log')];
  writeFileSync(file, '');
  await fillEmbeddedFolder(dir);
  for (let round = 0; round < KILLS; round += 1) await workAndDie(dir, file, round);

  const store = embedded({ dir });
  const mill = aMill(store);
  mill.job('short', () => undefined);
  mill.job('exact', (job) =>
    store.transaction(async (transaction) => {
      await transaction.query('insert into effects (job) values ($1)', [job.id]);
      await job.complete({ transaction });
    }),
  );
  await mill.start();
  const unfinished = { status: ['pending', 'processing'] as const };
  await until('nothing is left', async () => (await mill.jobs.count(unfinished)) === 0);

  const lines = readLines(file);
  expect(violations(lines, LEASE_MS)).toEqual([]);
  const accepted = lines.flatMap((line) => (line.what === 'accepted' ? [line.id ?? ''] : []));
  expect(accepted.length).toBeGreaterThan(KILLS * 10);
  for (const id of accepted) expect(await mill.jobs.get(id)).toMatchObject({ status: 'completed' });
  const exact = await mill.jobs.count({ name: 'exact', status: 'completed' });
  const effects = await store.transaction((transaction) => transaction.query('select job from effects'));
  expect(effects.rows).toHaveLength(exact);
  expect(new Set(effects.rows.map((row) => row['job']))).toHaveProperty('size', exact);
  await mill.stop();
  rmSync(base, { recursive: true });
}, 300_000);
