import { randomBytes } from 'node:crypto';
import { MINUTE_MS, type Cell, type Share } from '../../../store/metrics.js';
import { chapter, fact, type Chapter } from '../chapters.js';
import { expect } from '../expect.js';
import { aClaim, aJob, anInstance } from '../fixtures.js';

const anId = (): string => randomBytes(16).toString('hex');

function aShare(growth: Record<string, Record<string, number>>, given: Partial<Share> = {}): Share {
  return {
    id: anId(),
    number: 1,
    instanceId: 'one',
    everyMs: 60_000,
    growth: new Map(Object.entries(growth)),
    vitals: { running: 1, buffered: 2, abandoned: 3 },
    ...given,
  };
}

const aCell = (given: Partial<Cell> = {}): Cell => ({
  kind: 'job',
  name: 'mail',
  started: 2,
  waitMsSum: 30,
  waitMsMax: 20,
  done: 1,
  failed: 0,
  retried: 1,
  runMsSum: 7,
  runMsMax: 5,
  ...given,
});

export const measures: Chapter = chapter({ title: 'metrics', needs: ['metrics'] }, [
  fact('adds up the counts of all instances, and counts a repeated report once', async ({ opened }) => {
    const { metrics } = await opened();
    const odd = 'job:a.$b/ü "c"\\n';
    const first = aShare({ 'job:mail': { completed: 2, 'wait:250': 2 }, [odd]: { completed: 1 } });
    const other = aShare({ 'job:mail': { completed: 3, failed: 1 } });
    // The first two of a new store meet: neither may be taken for a repetition.
    await Promise.all([metrics.push(first), metrics.push(other)]);
    await metrics.push(first);
    await metrics.push({ ...first, number: 2, growth: new Map([['job:mail', { completed: 10 }]]) });
    await metrics.push(first);
    const { counts } = await metrics.read();
    expect(counts.get('job:mail')).toEqual({ completed: 15, failed: 1, 'wait:250': 2 });
    expect(counts.get(odd)).toEqual({ completed: 1 });
  }),

  fact('adds up concurrent reports', async ({ opened }) => {
    const { metrics } = await opened();
    const series = ['job:a', 'job:b', 'job:c'];
    await Promise.all(
      Array.from({ length: 12 }, (_, at) => {
        const order = at % 2 === 0 ? series : [...series].reverse();
        return metrics.push(aShare(Object.fromEntries(order.map((one) => [one, { completed: 1 }]))));
      }),
    );
    const { counts } = await metrics.read();
    expect(series.map((one) => counts.get(one)?.['completed'])).toEqual([12, 12, 12]);
  }),

  fact(
    'keeps the gauges of an instance with their age until it leaves, and its counts for good',
    async ({ opened }) => {
      const { metrics } = await opened();
      const share = aShare(
        { 'task:sync': { completed: 1 } },
        {
          vitals: {
            running: 4,
            buffered: 0,
            abandoned: 0,
            wakeUp: 'stream',
            planner: { lagMs: 5, reconciling: [{ collection: 'a.b', processed: 7 }] },
          },
        },
      );
      await metrics.push(share);
      const [said] = (await metrics.read()).shares;
      const { number, growth, ...rest } = share;
      expect(said).toMatchObject(rest);
      expect(said?.ageMs).toBeGreaterThanOrEqual(0);
      await metrics.leave(share.id);
      await metrics.forget();
      const { counts, shares } = await metrics.read();
      expect(shares).toEqual([]);
      expect(counts.get('task:sync')).toEqual({ completed: 1 });
    },
  ),

  fact('returns the requested minutes in order, summed over instances', async ({ opened }) => {
    const { metrics, clock } = await opened();
    const now = Math.floor(clock.now() / MINUTE_MS) * MINUTE_MS;
    const [before, last] = [new Date(now - MINUTE_MS), new Date(now)];
    const [one, two] = [anId(), anId()];
    await metrics.saveMinutes(one, [
      { at: before, cells: [aCell({ started: 99 }), aCell({ name: 'other' })] },
      { at: last, cells: [aCell({ kind: 'task', name: 'sync' }), aCell()] },
    ]);
    await metrics.saveMinutes(two, [{ at: before, cells: [aCell({ waitMsMax: 500, runMsMax: 1 })] }]);
    // A minute that has gone on takes the place of what was said of it.
    await metrics.saveMinutes(one, [{ at: before, cells: [aCell({ started: 3 })] }]);
    await metrics.saveWaiting(before, [{ kind: 'job', name: 'mail', due: 1, lagMs: 1 }]);
    await metrics.saveWaiting(before, [
      { kind: 'job', name: 'mail', due: 12, lagMs: 3_000 },
      { kind: 'document', name: 'visits', due: 2, lagMs: 9 },
    ]);
    const all = await metrics.series({ from: new Date(0), to: last });
    expect(all.map(({ at, kind, name }) => [at, kind, name])).toEqual([
      [before, 'document', 'visits'],
      [before, 'job', 'mail'],
      [last, 'job', 'mail'],
      [last, 'task', 'sync'],
    ]);
    expect(all[0]).toMatchObject({ started: 0, runMsMax: 0, backlog: 2, lagMs: 9 });
    expect(all[1]).toEqual({
      at: before,
      kind: 'job',
      name: 'mail',
      started: 5,
      waitMsSum: 60,
      waitMsMax: 500,
      done: 2,
      failed: 0,
      retried: 2,
      runMsSum: 14,
      runMsMax: 5,
      backlog: 12,
      lagMs: 3_000,
    });
    expect(all[2]).not.toHaveProperty('backlog');
    expect(await metrics.series({ from: last, to: last, kind: 'task' })).toHaveLength(1);
    expect(await metrics.series({ from: before, to: last, name: 'mail' })).toHaveLength(2);
    expect(await metrics.series({ from: before, to: last, kind: 'task', name: 'mail' })).toEqual([]);
  }),

  fact('counts jobs by name, and returns how long the oldest has been due', async ({ opened }) => {
    const { jobs, clock } = await opened();
    const at = (ms: number): Date => new Date(clock.now() + ms);
    await jobs.insert([
      ...[-5_000, -1_000, 3_600_000].map((ms) => aJob({ name: 'mail', nextRunAt: at(ms) })),
      aJob({ name: 'report', nextRunAt: at(3_600_000) }),
      aJob({ name: 'busy', nextRunAt: at(-10) }),
    ]);
    await jobs.claim(aClaim(anInstance(), { names: ['busy'] }));
    const depths = await jobs.depths({ cap: 100 });
    const byName = new Map(depths.map((depth) => [depth.name, depth]));
    expect(byName.get('mail')).toMatchObject({
      counts: { pending: 3, processing: 0, failed: 0 },
      due: 2,
    });
    expect(byName.get('mail')?.lagMs).toBeGreaterThanOrEqual(5_000);
    expect(byName.get('report')).toEqual({
      name: 'report',
      counts: { pending: 1, processing: 0, failed: 0 },
      due: 0,
      lagMs: 0,
    });
    expect(byName.get('busy')).toMatchObject({ counts: { pending: 0, processing: 1 }, due: 0, lagMs: 0 });
  }),
]);
