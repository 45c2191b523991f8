import type { JobRecord } from '../../../core/records/job.js';
import { chapter, fact, type Chapter } from '../chapters.js';
import { expect } from '../expect.js';
import { aClaim, ago, anInstance, gate, until } from '../fixtures.js';

const everySecond = '* * * * * *';

const missedRuns = [
  ['once', 1],
  ['skip', 0],
  ['all', 4],
] as const;

export const schedules: Chapter = chapter({ title: 'schedules', needs: ['schedules'] }, [
  fact('creates one schedule when ten instances request it at once', async ({ aMill }) => {
    const mills = Array.from({ length: 10 }, () => aMill());
    const jobs = await Promise.all(
      mills.map((mill) => mill.schedule('0 3 * * *', 'report', { kind: 'sales' })),
    );
    expect(new Set(jobs.map((job) => job.id)).size).toBe(1);
    expect(await mills[0]?.schedules.list()).toHaveLength(1);
    expect(await mills[0]?.schedules.get('report')).toMatchObject({
      name: 'report',
      uniqueKey: 'report',
      cron: '0 3 * * *',
      timezone: 'UTC',
      data: { kind: 'sales' },
      missed: 'once',
      paused: false,
      status: 'pending',
    });
  }),

  fact('runs a schedule repeatedly under one id, and records each run in its history', async ({ aMill }) => {
    const mill = aMill();
    const twice = gate();
    let runs = 0;
    mill.job('tick', (job) => {
      runs += 1;
      expect(job.scheduledFor).toBeInstanceOf(Date);
      if (runs === 2) twice.open();
    });
    await mill.start();
    const { id } = await mill.schedule(everySecond, 'tick');
    await twice.promise;
    await until('two runs are recorded', async () => ((await mill.jobs.get(id))?.history?.length ?? 0) >= 2);
    const job = await mill.jobs.get(id);
    expect(job).toMatchObject({ repeatInterval: everySecond, timezone: 'UTC', failCount: 0 });
    expect(await mill.jobs.count({ name: 'tick' })).toBe(1);
  }),

  fact('updates the cron, time zone and data of a schedule with the same key', async ({ aMill }) => {
    const mill = aMill();
    const first = await mill.schedule('0 3 * * *', 'report', { n: 1 });
    const data = await mill.schedule('0 3 * * *', 'report', { n: 2 });
    expect(data).toMatchObject({ id: first.id, data: { n: 2 }, nextRunAt: first.nextRunAt });
    const zone = await mill.schedule('0 3 * * *', 'report', { n: 2 }, { timezone: 'Asia/Tokyo' });
    expect(zone.nextRunAt.getUTCHours()).toBe(18);
    const cron = await mill.schedule('30 4 * * *', 'report', { n: 2 });
    expect([cron.nextRunAt.getUTCHours(), cron.nextRunAt.getUTCMinutes()]).toEqual([4, 30]);
    const other = await mill.schedule('30 4 * * *', 'report', { n: 2 }, { uniqueKey: 'second' });
    expect(other.id).not.toBe(first.id);
    expect(await mill.schedules.list('report')).toHaveLength(2);
  }),

  fact('keeps a changed schedule when a run that was in progress settles', async ({ aMill }) => {
    const mill = aMill();
    const [running, finish] = [gate(), gate()];
    mill.job('report', async () => {
      running.open();
      await finish.promise;
    });
    await mill.start();
    const { id } = await mill.schedule('0 3 1 1 *', 'report', { n: 1 });
    expect((await mill.schedules.runNow('report')).outcome).toBe('due');
    await running.promise;
    expect((await mill.schedules.runNow('report')).outcome).toBe('running');
    await mill.schedule('0 5 1 7 *', 'report', { n: 2 });
    finish.open();
    const job = await until('the run is recorded', async () => {
      const now = await mill.jobs.get(id);
      return now?.status === 'pending' && now;
    });
    expect(job).toMatchObject({ data: { n: 2 }, repeatInterval: '0 5 1 7 *' });
    expect([job.nextRunAt.getUTCMonth(), job.nextRunAt.getUTCHours()]).toEqual([6, 5]);
  }),

  fact('lets a schedule and a plain job share a unique key', async ({ aMill }) => {
    const mill = aMill();
    await mill.schedule('0 3 * * *', 'report');
    expect((await mill.enqueue('report', {}, { uniqueKey: 'report', delay: '1h' })).outcome).toBe('created');
    await mill.schedule('0 4 * * *', 'report');
    expect(await mill.jobs.count({ name: 'report' })).toBe(2);
  }),

  fact(
    'stores a run that used up its attempts as a failed job, and continues the schedule',
    async ({ aMill }) => {
      const mill = aMill();
      mill.job('report', { retryPolicy: { type: 'fixed', interval: 0, maxAttempts: 2 } }, () => {
        throw new Error('no data');
      });
      await mill.start();
      const retryPolicy = { type: 'fixed', interval: 1, maxAttempts: 2 } as const;
      const { id } = await mill.schedule('0 3 1 1 *', 'report', { n: 1 }, { retryPolicy, timeout: '7s' });
      await mill.schedules.runNow('report');
      const [copy] = await until('the copy is there', async () => {
        const { items } = await mill.jobs.find({ status: 'failed' });
        return items.length === 1 && items;
      });
      expect(copy).toMatchObject({
        name: 'report',
        data: { n: 1 },
        scheduleId: id,
        failCount: 2,
        failReason: 'no data',
        retryPolicy,
        timeoutMs: 7_000,
      });
      expect(copy?.scheduledFor).toBeInstanceOf(Date);
      const schedule = await until('the schedule goes on', async () => {
        const now = await mill.jobs.get(id);
        return now?.status === 'pending' && now.failCount === 0 && now;
      });
      expect(schedule.nextRunAt.getUTCMonth()).toBe(0);
      expect(schedule.history?.map((entry) => entry.status)).toEqual(['failed', 'failed']);
      expect(await mill.jobs.retry(copy?.id ?? '')).toMatchObject({ outcome: 'retried' });
    },
  ),

  fact(
    'ends a schedule after repeatUntil, and starts it again when it is defined again',
    async ({ aMill }) => {
      const mill = aMill();
      mill.job('tick', () => undefined);
      await mill.start();
      // Its only time, however late the run is.
      const last = new Date(Math.ceil(Date.now() / 1_000) * 1_000 + 4_000);
      const cron = `${String(last.getUTCSeconds())} ${String(last.getUTCMinutes())} ${String(last.getUTCHours())} * * *`;
      const { id } = await mill.schedule(cron, 'tick', {}, { repeatUntil: last });
      await until('it has ended', async () => (await mill.jobs.get(id))?.status === 'completed');
      expect(await mill.schedules.get('tick')).toMatchObject({ status: 'completed', nextRunAt: null });
      expect((await mill.jobs.get(id))?.scheduledFor).toEqual(last);
      await expect(mill.schedule(everySecond, 'tick', {}, { repeatUntil: last })).rejects.toThrow(
        'repeatUntil',
      );
      expect(await mill.schedule('0 3 * * *', 'tick')).toMatchObject({ id, status: 'pending' });
    },
  ),

  fact('pauses, previews, resumes, runs and removes a schedule', async ({ aMill }) => {
    const mill = aMill();
    const ran = gate();
    mill.job('report', () => ran.open());
    await mill.start();
    const start = new Date('2040-01-01T03:00:00Z');
    await mill.schedule('0 3 * * *', 'report', {}, { startAt: start });
    expect(await mill.schedules.next('report', 3)).toEqual([
      start,
      new Date('2040-01-02T03:00:00Z'),
      new Date('2040-01-03T03:00:00Z'),
    ]);
    expect(await mill.schedules.next(1)).toEqual([{ name: 'report', uniqueKey: 'report', at: start }]);
    expect(await mill.schedules.pause('report')).toMatchObject({ paused: true, nextRunAt: null });
    await mill.schedules.runNow('report');
    await ran.promise;
    await until('it waits again', async () => (await mill.schedules.get('report'))?.status === 'pending');
    expect(await mill.schedules.get('report')).toMatchObject({ paused: true, nextRunAt: null });
    expect(await mill.schedules.resume('report')).toMatchObject({ paused: false, nextRunAt: start });
    expect(await mill.schedules.remove('report')).toBe(true);
    expect(await mill.schedules.remove('report')).toBe(false);
    await expect(mill.schedules.pause('report')).rejects.toMatchObject({ code: 'SCHEDULE_MISSING' });
  }),

  ...missedRuns.map(([missed, expected]) =>
    fact(`handles missed runs of a schedule with missed: ${missed}`, async ({ aMill, opened }) => {
      const store = await opened();
      const mill = aMill();
      const slots: Date[] = [];
      mill.job('tick', (job) => slots.push(job.scheduledFor as Date));
      // The fourth of January, three days after the first run was due: nobody ran meanwhile.
      const [start, end] = [ago(3 * 86_400_000 + 3_600_000), new Date(Date.now() + 86_400_000)];
      const cron = `${String(start.getUTCMinutes())} ${String(start.getUTCHours())} * * *`;
      await store.jobs.putSchedule({
        name: 'tick',
        key: 'tick',
        data: {},
        cron,
        timezone: 'UTC',
        missed,
        priority: 0,
        repeatUntil: end,
        firstRunAt: start,
        now: new Date(),
      });
      await mill.start();
      const schedule = await until('it has caught up', async () => {
        const now = await mill.schedules.get('tick');
        return (now?.nextRunAt ?? start) > new Date() && now?.status === 'pending' && now;
      });
      expect(slots).toHaveLength(expected);
      expect(schedule.nextRunAt?.getTime()).toBeGreaterThan(Date.now());
    }),
  ),

  fact(
    'stores a failed run before it advances the schedule, so that a crash in between loses nothing',
    async ({ aMill, opened }) => {
      const store = await opened();
      const mill = aMill();
      const { id } = await mill.schedule('0 3 * * *', 'report', { n: 1 });
      await mill.schedules.runNow('report');
      const [job] = (await store.jobs.claim(aClaim(anInstance(), { names: ['report'] }))).jobs;
      const failure = {
        failCount: 1,
        failReason: 'x',
        failKind: 'error' as const,
        scheduledFor: job?.scheduledFor as Date,
        finishedAt: new Date(),
        expiresAt: null,
        historyLimit: 5,
      };
      await store.jobs.insertFailedRun(job as JobRecord, failure);
      await store.jobs.insertFailedRun(job as JobRecord, failure);
      expect(await mill.jobs.count({ status: 'failed' })).toBe(1);
      expect(await mill.jobs.get(id)).toMatchObject({ status: 'processing' });
    },
  ),
]);
