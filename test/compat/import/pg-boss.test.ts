import type { Pool } from 'pg';
import { describe, expect, inject, it } from 'vitest';
import type { Tidemill } from '../../../src/index.js';
import { aMill, until } from '../../support/mills.js';
import { freshPostgres, freshSchema, rawPool } from '../../support/stores.js';
import { bringForward, onTidemill, ORDERS, OUTCOME, Shop } from '../apps/orders.js';
import { createQueues, placeOrders, workOn } from '../apps/pg-boss.js';
import { reasonsOf, runImport } from './imports.js';
import { newBoss, type Boss } from './originals.js';

const HOUR_S = 3_600;
const pool: Pool = rawPool();

/** A schema of pg-boss, and one of ours, in the same database. */
function places() {
  const schema = freshSchema();
  const url = inject('postgresUrl');
  const from = `boss_${schema}`;
  return {
    bossSchema: from,
    boss: (): Promise<Boss> => newBoss(url, from),
    mill: (): Tidemill => aMill(freshPostgres({ schema })),
    run: (flags: readonly string[] = []) =>
      runImport('pg-boss', { from: url, store: ['--store', url, '--schema', schema] }, [
        '--from-schema',
        from,
        ...flags,
      ]),
  };
}

const stop = (boss: Boss): Promise<void> => boss.stop({ graceful: true, close: true });

describe('tidemill import pg-boss', () => {
  it('an application comes to the same on the original alone', async () => {
    const shop = new Shop();
    const old = await places().boss();
    await createQueues(old);
    await placeOrders(old, 0);
    await workOn(old, shop);
    await until(
      'all were tried',
      () => shop.charged.length === ORDERS.length - 1 && shop.refused.length === 1,
    );
    shop.declined.clear();
    await old.send('charge', { order: 'order-3' });
    await until(
      'all is done',
      () => shop.charged.length === ORDERS.length && shop.mailed.length === ORDERS.length,
    );
    await stop(old);
    expect(shop.outcome).toEqual(OUTCOME);
  });

  it('takes over an application in the middle of its work', async () => {
    const { boss, bossSchema, mill: open, run } = places();
    const shop = new Shop();
    const old = await boss();
    await createQueues(old);
    await placeOrders(old);
    await workOn(old, shop);
    await until('the first orders were tried', async () => {
      const { rows } = await pool.query(
        `select 1 from ${bossSchema}.job where name = 'charge' and state in ('completed', 'failed')`,
      );
      return rows.length === 3;
    });
    await stop(old);
    expect([...shop.charged].sort()).toEqual(['order-1', 'order-2']);

    const { report } = await run();
    expect(report.jobs).toEqual({ created: ORDERS.length + 2, failed: 1, here: 0 });
    expect(report.schedules).toEqual({ created: 1, here: 0 });
    expect(report.left).toEqual([]);

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
    expect(failed?.history?.[0]?.error?.stack).toContain('declined');
    shop.declined.clear();
    await mill.jobs.retry(failed!.id);
    await bringForward(mill);
    await until(
      'all is done',
      () => shop.charged.length === ORDERS.length && shop.mailed.length === ORDERS.length,
    );
    expect(shop.outcome).toEqual(OUTCOME);
    expect(await mill.schedules.get('report')).toMatchObject({
      cron: '0 3 * * *',
      timezone: 'Europe/Berlin',
      data: { region: 'north' },
    });
    await mill.schedules.runNow('report');
    await until('the report ran', () => shop.reports.length === 1);
  });

  it('keeps unique keys, priorities, retries and the attempts so far', async () => {
    const { boss, bossSchema, mill: open, run } = places();
    const old = await boss();
    await old.createQueue('sync', { policy: 'stately', retryLimit: 5, retryDelay: 30, retryBackoff: true });
    await old.createQueue('flaky', { retryLimit: 2, retryDelay: HOUR_S, expireInSeconds: 60 });
    await old.createQueue('one', { policy: 'singleton' });
    await old.send('sync', { n: 1 }, { singletonKey: 'ada', priority: 99 });
    await old.send('one', null, { singletonKey: 'x', priority: -3 });
    const grouped = await old.send('one', null, { singletonKey: 'y', group: { id: 'acme' } });
    const id = await old.send('flaky', { n: 2 }, { group: { id: 'zeta' } });
    await old.fetch('flaky');
    await old.fail('flaky', id!, { message: 'no answer' });
    await old.schedule('sync', '*/10 * * * *', null, { key: 'often', priority: 4 });
    await old.schedule('sync', '0 0 29 2 *', null, { key: 'rare' });
    await stop(old);
    const dry = await run(['--dry-run']);
    const { report } = await run();
    expect(report.jobs).toEqual({ created: 4, failed: 0, here: 0 });
    expect(dry.report.jobs).toEqual(report.jobs);
    expect(reasonsOf(report.differs)).toEqual({
      'its priority is beyond -10 to 10, and becomes the nearest of these': 1,
      'its queue has the policy singleton, which has no counterpart': 2,
      'its group: set limits.perKey of the definition': 2,
    });
    const mill = open();
    const [sync] = (await mill.jobs.find({ name: 'sync', uniqueKey: 'ada' })).items;
    expect(sync).toMatchObject({
      priority: 10,
      data: { n: 1 },
      retryPolicy: { type: 'exponential', min: 60_000, jitter: 0.5, maxAttempts: 6 },
    });
    const [flaky] = (await mill.jobs.find({ name: 'flaky' })).items;
    expect(flaky).toMatchObject({
      id: `pg-boss:flaky/${id!}`,
      status: 'pending',
      failCount: 1,
      error: 'no answer',
      timeoutMs: 60_000,
      retryPolicy: { type: 'fixed', interval: HOUR_S * 1_000, maxAttempts: 3 },
    });
    expect(flaky!.runAt.getTime()).toBeGreaterThan(Date.now() + 1_800_000);
    expect(flaky?.limitKey).toBe('zeta');
    expect((await mill.jobs.get(`pg-boss:one/${grouped!}`))?.limitKey).toBe('acme');
    const one = (await mill.jobs.find({ name: 'one' })).items.find(({ limitKey }) => limitKey === undefined);
    expect(one).toMatchObject({ priority: -3, data: null });
    expect(one).not.toHaveProperty('uniqueKey');
    expect((await mill.schedules.list('sync')).map(({ uniqueKey, cron }) => [uniqueKey, cron])).toEqual([
      ['often', '*/10 * * * *'],
      ['rare', '0 0 29 2 *'],
    ]);
    const again = await run();
    expect(again.report.jobs).toEqual({ created: 0, failed: 0, here: 4 });
    expect(again.report.schedules).toEqual({ created: 0, here: 2 });
    expect(
      (await pool.query(`select 1 from ${bossSchema}.job where name not like '\\_\\_%'`)).rows,
    ).toHaveLength(4);
  });

  it('lists what it leaves by reason, and takes over what expired', async () => {
    const { boss, bossSchema, mill: open, run } = places();
    const old = await boss();
    for (const name of ['run', 'lost', 'gone', 'over', 'blocked'])
      await old.createQueue(name, { retryLimit: name === 'gone' ? 0 : 2 });
    for (const name of ['run', 'lost', 'gone']) {
      await old.send(name, { name });
      await old.fetch(name);
    }
    await old.cancel('over', (await old.send('over'))!);
    await old.send('blocked');
    await stop(old);
    await pool.query(`update ${bossSchema}.job set blocked = true where name = 'blocked'`);
    await pool.query(
      `update ${bossSchema}.job set started_on = now() - interval '1 day' where name in ('lost', 'gone')`,
    );
    await pool.query(
      `insert into ${bossSchema}.schedule (name, key, kind, cron) values ('run', 'r', 'rrule', 'FREQ=DAILY')`,
    );
    const { report } = await run();
    expect(report.found).toEqual({ active: 3, cancelled: 1, created: 1, schedules: 1 });
    expect(report.jobs).toEqual({ created: 1, failed: 1, here: 0 });
    expect(reasonsOf(report.left)).toEqual({
      'its times are of the kind rrule, and not cron text': 1,
      'it waits for other jobs of a flow': 1,
      'it runs there now, and has not expired (--include-running imports it)': 1,
    });
    const mill = open();
    expect((await mill.jobs.find({ name: 'lost' })).items[0]).toMatchObject({
      status: 'pending',
      failCount: 1,
    });
    expect((await mill.jobs.find({ name: 'gone' })).items[0]).toMatchObject({
      status: 'failed',
      error: 'it expired without an end',
    });
    expect((await run(['--include-running'])).report.jobs).toEqual({ created: 1, failed: 0, here: 2 });
  });

  it('reads the tables of version 10, whose limits are intervals and whose queues leave options out', async () => {
    const { boss, bossSchema, mill: open, run } = places();
    const old = await boss();
    for (const name of ['long', 'lost']) {
      await old.createQueue(name);
      await old.send(name, { name });
      await old.fetch(name);
    }
    await old.schedule('long', '0 3 * * *', null, { retryDelay: 7 });
    await stop(old);
    await pool.query(`
      alter table ${bossSchema}.job add column expire_in interval not null default interval '15 minutes';
      alter table ${bossSchema}.job drop column expire_seconds cascade;
      update ${bossSchema}.job set started_on = now() - interval '1 hour';
      update ${bossSchema}.job set expire_in = interval '1 day 2 hours' where name = 'long';
      alter table ${bossSchema}.queue alter column retry_limit drop not null, alter column retry_delay drop not null,
        alter column retry_backoff drop not null, alter column expire_seconds drop not null;
      update ${bossSchema}.queue set retry_limit = null, retry_delay = null, retry_backoff = null, expire_seconds = null`);
    const { report } = await run(['--move']);
    expect(reasonsOf(report.left)).toEqual({
      'it runs there now, and has not expired (--include-running imports it)': 1,
    });
    expect(report).toMatchObject({ jobs: { created: 1 }, schedules: { created: 1 }, removed: 2 });
    const mill = open();
    expect((await mill.jobs.find({ name: 'lost' })).items[0]).toMatchObject({
      failCount: 1,
      timeoutMs: 900_000,
    });
    const { rows } = await pool.query(`select 1 from ${bossSchema}.schedule`);
    expect(rows).toEqual([]);
    const [schedule] = (await mill.jobs.find({ name: 'long' })).items;
    expect(schedule).toMatchObject({ retryPolicy: { type: 'fixed', interval: 7_000, maxAttempts: 3 } });
    expect(schedule).not.toHaveProperty('timeoutMs');
    const running = await run(['--include-running']);
    expect(running.report.jobs).toMatchObject({ created: 1 });
    expect(
      (await mill.jobs.find({ name: 'long', status: 'pending' })).items.map(({ timeoutMs }) => timeoutMs),
    ).toContain(26 * HOUR_S * 1_000);
  });

  it('moves what expired there also if an earlier run has stored it', async () => {
    const { boss, bossSchema, run } = places();
    const old = await boss();
    await old.createQueue('lost', { retryLimit: 2 });
    await old.send('lost', {});
    await old.fetch('lost');
    await stop(old);
    await pool.query(
      `update ${bossSchema}.job set started_on = now() - interval '1 day' where name = 'lost'`,
    );
    await run();
    expect((await run(['--move'])).report).toMatchObject({ jobs: { here: 1 }, removed: 1, left: [] });
  });

  it('removes with --move what is stored, and leaves finished jobs', async () => {
    const { boss, bossSchema, run } = places();
    const old = await boss();
    await old.createQueue('mail');
    await old.createQueue('done');
    for (const to of ['ada', 'bob']) await old.send('mail', { to }, { startAfter: HOUR_S });
    await old.send('done');
    const [job] = await old.fetch('done');
    await old.complete('done', job!.id);
    await old.schedule('mail', '0 3 * * *');
    await stop(old);
    const { report } = await run(['--move']);
    expect(report).toMatchObject({ jobs: { created: 2 }, schedules: { created: 1 }, removed: 3, left: [] });
    const { rows } = await pool.query(`select name from ${bossSchema}.job where name not like '\\_\\_%'`);
    expect(rows).toEqual([{ name: 'done' }]);
    expect((await pool.query(`select 1 from ${bossSchema}.schedule`)).rows).toEqual([]);
  });

  it('takes runs of schedules that have not reached their queue', async () => {
    const { boss, bossSchema, mill: open, run } = places();
    const old = await boss();
    await old.createQueue('report', { retryLimit: 5, retryDelay: 3, expireInSeconds: 60 });
    await stop(old);
    const forwarded = { name: 'report', key: '', data: { region: 'north' }, options: { priority: 4 } };
    await pool.query(`insert into ${bossSchema}.job (name, data) values ('__pgboss__send-it', $1)`, [
      forwarded,
    ]);
    const { report } = await run(['--move']);
    expect(report.found).toMatchObject({ 'runs of schedules on their way': 1 });
    expect(report).toMatchObject({ jobs: { created: 1 }, removed: 1, left: [] });
    expect((await open().jobs.find({ name: 'report' })).items).toMatchObject([
      {
        data: { region: 'north' },
        priority: 4,
        timeoutMs: 60_000,
        retryPolicy: { type: 'fixed', interval: 3_000, maxAttempts: 6 },
      },
    ]);
  });
});
