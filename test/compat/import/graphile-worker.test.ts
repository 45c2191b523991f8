import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { Pool } from 'pg';
import { describe, expect, inject, it } from 'vitest';
import type { Tidemill } from '../../../src/index.js';
import type { TerminalOptions } from '../../cli/terminal.js';
import { aMill, until } from '../../support/mills.js';
import { freshPostgres, freshSchema, rawPool } from '../../support/stores.js';
import { placeOrders, workOn } from '../apps/graphile-worker.js';
import { bringForward, onTidemill, ORDERS, OUTCOME, Shop } from '../apps/orders.js';
import { reasonsOf, runImport } from './imports.js';
import { loadGraphile } from './originals.js';

const HOUR = 3_600_000;
const main = fileURLToPath(new URL('../../../src/cli/main.ts', import.meta.url));
const pool: Pool = rawPool();

function places() {
  const schema = freshSchema();
  const url = inject('postgresUrl');
  const theirs = `graphile_${schema}`;
  return {
    there: { connectionString: url, schema: theirs },
    jobs: `${theirs}._private_jobs`,
    mill: (): Tidemill => aMill(freshPostgres({ schema })),
    args: [
      ...['import', 'graphile-worker', '--from', url, '--from-schema', theirs],
      ...['--store', url, '--schema', schema],
    ],
    run: (flags: readonly string[] = [], terminal: TerminalOptions = {}) =>
      runImport(
        'graphile-worker',
        { from: url, store: ['--store', url, '--schema', schema] },
        ['--from-schema', theirs, ...flags],
        terminal,
      ),
  };
}

type Add = (task: string, payload?: unknown, spec?: object) => Promise<{ readonly id: string }>;

async function adding(there: object, add: (addJob: Add) => Promise<void>): Promise<void> {
  const { makeWorkerUtils, Logger } = await loadGraphile();
  const utils = await makeWorkerUtils({ ...there, logger: new Logger(() => () => undefined) });
  await utils.migrate();
  await add(utils.addJob.bind(utils));
  await utils.release();
}

describe('tidemill import graphile-worker', () => {
  it('an application comes to the same on the original alone', async () => {
    const { there } = places();
    const graphile = await loadGraphile();
    const shop = new Shop();
    await placeOrders(graphile, there, 0);
    const worker = await workOn(graphile, there, shop);
    await until(
      'all were tried',
      () => shop.charged.length === ORDERS.length - 1 && shop.refused.length === 1,
    );
    shop.declined.clear();
    await adding(there, async (addJob) => {
      await addJob('charge', { order: 'order-3' });
    });
    await until(
      'all is done',
      () => shop.charged.length === ORDERS.length && shop.mailed.length === ORDERS.length,
    );
    await worker.stop();
    expect(shop.outcome).toEqual(OUTCOME);
  });

  it('takes over an application in the middle of its work', async () => {
    const { there, jobs, mill: open, run } = places();
    const graphile = await loadGraphile();
    const shop = new Shop();
    await placeOrders(graphile, there);
    const worker = await workOn(graphile, there, shop);
    await until('the first orders were tried', async () => {
      const { rows } = await pool.query(`select 1 from ${jobs} where attempts > 0 and locked_at is null`);
      return shop.charged.length === 2 && rows.length === 1;
    });
    await worker.stop();
    expect([...shop.charged].sort()).toEqual(['order-1', 'order-2']);

    const { report } = await run();
    expect(report.jobs).toEqual({ created: ORDERS.length + 2, failed: 1, here: 0 });
    expect(reasonsOf(report.left)).toEqual({
      'its times are in the crontab of the old application, and not in the database: call mill.schedule': 1,
    });

    const mill = open();
    onTidemill(mill, shop);
    await mill.start();
    const [failed] = (await mill.jobs.find({ status: 'failed' })).items;
    expect(failed).toMatchObject({
      name: 'charge',
      data: { order: 'order-3' },
      error: 'the card for order-3 was declined',
      failCount: 1,
    });
    shop.declined.clear();
    await mill.jobs.retry(failed!.id);
    await bringForward(mill);
    await until(
      'all is done',
      () => shop.charged.length === ORDERS.length && shop.mailed.length === ORDERS.length,
    );
    expect(shop.outcome).toEqual(OUTCOME);
  });

  it('keeps keys, priorities and attempts, says what differs, and copies nothing twice', async () => {
    const { there, jobs, mill: open, run } = places();
    await adding(there, async (addJob) => {
      await addJob('sync', { n: 1 }, { jobKey: 'ada', priority: -5, runAt: new Date(Date.now() + HOUR) });
      await addJob('sync', { n: 2 }, { priority: 50, queueName: 'serial', flags: ['slow'] });
      await addJob('flaky', { n: 3 }, { maxAttempts: 4 });
      await addJob('run', {});
      await addJob('lost', {});
      await addJob('spent', {}, { maxAttempts: 2 });
    });
    await pool.query(
      `update ${jobs} set attempts = 2, last_error = 'no answer', run_at = now() + interval '1 hour' where max_attempts = 4`,
    );
    await pool.query(`update ${jobs} set attempts = 2 where max_attempts = 2`);
    const lock = (task: string, age: string): Promise<unknown> =>
      pool.query(
        `update ${jobs} j set attempts = 1, locked_by = 'w', locked_at = now() - $2::interval
         from ${there.schema}._private_tasks t where t.id = j.task_id and t.identifier = $1`,
        [task, age],
      );
    await lock('run', '1 minute');
    await lock('lost', '5 hours');
    const { report } = await run();
    expect(report.found).toEqual({ waiting: 3, locked: 2, failed: 1, 'known crontabs': 0 });
    expect(report.jobs).toEqual({ created: 4, failed: 1, here: 0 });
    expect(reasonsOf(report.left)).toEqual({
      'it runs there now: its lock is younger than the lock lifetime (--include-running imports it)': 1,
    });
    expect(reasonsOf(report.differs)).toEqual({
      'its priority is beyond -10 to 10, and becomes the nearest of these': 1,
      'its queue ran one job at a time: set concurrency of the definition, or use withLock': 1,
      'its flags, which have no counterpart': 1,
      'its lock was older than the lock lifetime: that counts as a failed attempt': 1,
    });
    const mill = open();
    const named = async (name: string): Promise<unknown> => (await mill.jobs.find({ name })).items[0];
    expect((await mill.jobs.find({ uniqueKey: 'ada' })).items[0]).toMatchObject({
      name: 'sync',
      priority: 5,
      data: { n: 1 },
    });
    expect(await named('flaky')).toMatchObject({
      status: 'pending',
      failCount: 2,
      error: 'no answer',
      retryPolicy: { maxAttempts: 4 },
    });
    expect(await named('lost')).toMatchObject({ status: 'pending', failCount: 1 });
    expect(await named('spent')).toMatchObject({
      status: 'failed',
      failCount: 2,
      error: 'its attempts were used up without an error',
    });
    expect((await run()).report.jobs).toEqual({ created: 0, failed: 0, here: 5 });
    expect((await run(['--include-running'])).report.jobs).toEqual({ created: 1, failed: 0, here: 5 });
  });

  it('keeps a job that addJob has changed by its key after it was imported', async () => {
    const { there, jobs, mill: open, run } = places();
    const runAt = new Date(Date.now() + HOUR);
    const add = (payload: object): Promise<void> =>
      adding(there, async (addJob) => {
        await addJob('sync', payload, { jobKey: 'ada', runAt });
      });
    await add({ n: 1 });
    await run();
    await add({ n: 2 });
    const { report } = await run(['--move']);
    expect(report.removed).toBe(0);
    expect(reasonsOf(report.left)).toEqual({
      'it changed there after it was stored here: it is in both': 1,
    });
    expect((await pool.query(`select payload from ${jobs}`)).rows).toEqual([{ payload: { n: 2 } }]);
    await open().jobs.removeMany({ name: 'sync' });
    expect((await run(['--move'])).report).toMatchObject({ jobs: { created: 1 }, removed: 1, left: [] });
  });

  it('keeps jobs of two databases apart, whose ids both begin at 1', async () => {
    const first = places();
    const second = places();
    for (const { there } of [first, second])
      await adding(there, async (addJob) => {
        await addJob('mail', { of: there.schema });
      });
    await first.run();
    const from = ['--from-schema', second.there.schema];
    expect((await first.run(from)).report.jobs).toEqual({ created: 1, failed: 0, here: 0 });
  });

  it('removes with --move what is stored and has not changed', async () => {
    const { there, jobs, run } = places();
    await adding(there, async (addJob) => {
      await addJob('mail', { to: 'ada' });
      await addJob('mail', { to: 'bob' });
    });
    expect((await run(['--move'])).report).toMatchObject({ jobs: { created: 2 }, removed: 2, left: [] });
    expect((await pool.query(`select 1 from ${jobs}`)).rows).toEqual([]);
  });

  it('loses and doubles nothing if it is killed between storing and removing', async () => {
    const { there, jobs, mill: open, args, run } = places();
    await adding(there, async (addJob) => {
      for (let n = 0; n < 20; n += 1) await addJob('mail', { n });
    });
    const mill = open();
    // Locked rows hold up the removal only.
    const holder = await pool.connect();
    await holder.query('begin');
    await holder.query(`select 1 from ${jobs} for update`);
    const first = spawn(process.execPath, ['--import', 'tsx', main, ...args, '--move']);
    const killed = once(first, 'exit');
    await until('all are stored', async () => (await mill.jobs.count({ name: 'mail' })) === 20);
    const blocked = `from pg_stat_activity where application_name = 'tidemill import' and query like '%' || $1 || '%'`;
    await until('it removes them', async () => {
      const { rows } = await pool.query(`select 1 ${blocked} and wait_event_type = 'Lock'`, [there.schema]);
      return rows.length === 1;
    });
    first.kill('SIGKILL');
    expect(await killed).toEqual([null, 'SIGKILL']);
    await pool.query(`select pg_terminate_backend(pid) ${blocked}`, [there.schema]);
    await holder.query('rollback');
    holder.release();
    expect((await pool.query(`select 1 from ${jobs}`)).rows).toHaveLength(20);
    const { report } = await run(['--move']);
    expect(report).toMatchObject({ jobs: { created: 0, here: 20 }, removed: 20, left: [] });
    expect((await pool.query(`select 1 from ${jobs}`)).rows).toEqual([]);
    expect(await mill.jobs.count({ name: 'mail' })).toBe(20);
  });

  it('follows what old producers still add, until it is interrupted', async () => {
    const { there, jobs, mill: open, run } = places();
    const add = (n: number): Promise<void> =>
      adding(there, async (addJob) => {
        await addJob('mail', { n });
      });
    await add(1);
    const end = new AbortController();
    const following = run(['--follow', '--move'], { interrupt: end.signal });
    const mill = open();
    const here = (count: number): Promise<unknown> =>
      until(`${String(count)} are here`, async () => (await mill.jobs.count({ name: 'mail' })) === count);
    await here(1);
    await add(2);
    await here(2);
    end.abort();
    expect((await following).report).toMatchObject({ jobs: { created: 2 }, removed: 2, left: [] });
    expect((await pool.query(`select 1 from ${jobs}`)).rows).toEqual([]);
  });
});
