/** Limits per key of reactive tasks, on the port of each store: planning writes the keys, claims keep the limits. */
import { expect, it } from 'vitest';
import type { TaskRecord } from '../../../src/core/records/task.js';
import { compileTask } from '../../../src/reactive/definition.js';
import {
  leaseOf,
  type ClaimAnswer,
  type KeyRule,
  type LimitStore,
  type NameLimit,
  type Store,
} from '../../../src/store/port.js';
import type {
  ReactiveStore,
  TaskPlan,
  TaskSettlement,
  TaskStore,
} from '../../../src/store/reactive/reactive.js';
import { aClaim, ahead, anInstance, opened } from '../../support/port.js';
import { until } from '../../support/mills.js';
import { eachDatabase, type TestDatabase, type Thing } from './test-databases.js';

const ONE: KeyRule = { concurrency: 1 };
const TASK = { kind: 'task', name: 't' } as const;

const planOf = (key: string | undefined, fields: object = {}): TaskPlan =>
  compileTask({
    task: 't',
    collection: 'things',
    debounce: 0,
    ...(key === undefined ? {} : { limits: { perKey: { key } } }),
    handler: () => undefined,
    ...fields,
  }).plan;

/** The port of one store, with the task `t` on `things`. */
class Port {
  readonly database: TestDatabase;
  readonly store: Store;
  readonly reactive: ReactiveStore;
  readonly limits: LimitStore;
  readonly tasks: TaskStore;
  plan: TaskPlan;

  private constructor(database: TestDatabase, store: Store, plan: TaskPlan) {
    this.database = database;
    this.store = store;
    this.reactive = store.reactive as ReactiveStore;
    this.limits = store.limits as LimitStore;
    this.plan = plan;
    this.tasks = this.reactive.tasks(() => new Map([['t', this.plan]]));
  }

  static async open(database: TestDatabase, plan: TaskPlan): Promise<Port> {
    const port = new Port(database, await opened(database.store()), plan);
    await port.reactive.prepare([plan]);
    await port.reactive.planner.publish([plan]);
    return port;
  }

  /** Plans all documents. */
  async replan(plan: TaskPlan = this.plan): Promise<void> {
    const { ids } = await this.reactive.planning.documents(plan.source, undefined, 1_000);
    expect(await this.reactive.planning.plan(plan, ids, 10_000)).toEqual([]);
  }

  async planned(things: readonly Thing[]): Promise<void> {
    await this.database.docs.insertMany(things);
    await this.replan();
  }

  claim(
    keys: KeyRule | undefined,
    max = 10,
    fields: Partial<NameLimit> = {},
  ): Promise<ClaimAnswer<TaskRecord>> {
    const limit = { max, rank: 0, of: 1, ...(keys === undefined ? {} : { keys }), ...fields };
    return this.tasks.claim(aClaim(anInstance(), { limits: new Map([['t', limit]]), total: max }));
  }

  async settle(task: TaskRecord, fields: Partial<TaskSettlement> = {}): Promise<void> {
    const settlement: TaskSettlement = {
      lease: leaseOf(task),
      name: task.name,
      status: 'completed',
      takeBack: false,
      deferred: false,
      skipped: false,
      resetRetries: true,
      historyLimit: 5,
      by: 'holder',
      ...fields,
    };
    expect(await this.tasks.settle([settlement])).toEqual(['settled']);
  }

  /** The keys of the stored tasks by the ids of their documents. */
  async keys(): Promise<Record<string, unknown>> {
    const page = { field: 'createdAt', direction: 1, limit: 100, skip: 0 } as const;
    const { tasks } = await this.tasks.find({}, page);
    return Object.fromEntries(tasks.map(({ sourceDocId, limitKey }) => [String(sourceDocId), limitKey]));
  }
}

const things = (keys: string, from = 1): Thing[] =>
  Array.from(keys, (status, at) => ({ _id: from + at, status, n: 0 }));
const keysOf = ({ jobs }: ClaimAnswer<TaskRecord>): string =>
  jobs
    .map(({ limitKey }) => limitKey)
    .sort()
    .join('');
const present = <T>(value: T | undefined): T => {
  if (value === undefined) throw new Error('nothing was claimed');
  return value;
};

eachDatabase('keys of reactive tasks', (aDatabase) => {
  it('takes the key from the watched values', async () => {
    const port = await Port.open(await aDatabase(), planOf('info.customer'));
    await port.planned([
      { _id: 1, info: { customer: 'acme' } },
      { _id: 2, info: { customer: 7 } },
      { _id: 3, info: { customer: null } },
      { _id: 4, info: {} },
      { _id: 5, info: { customer: ['acme'] } },
      { _id: 6, info: { customer: true } },
      { _id: 7, info: { customer: 'x'.repeat(1_024) } },
      { _id: 8, info: { customer: 'x'.repeat(1_025) } },
      { _id: 9, info: [{ customer: 'acme' }] },
      { _id: 10, info: { customer: 1.5 } },
      { _id: 11, info: { customer: 'Zürich ✓' } },
    ]);
    const long = 'x'.repeat(1_024);
    expect(await port.keys()).toEqual({
      ...{ 1: 'acme', 2: '7', 3: '', 4: '', 5: '', 6: '', 7: long, 8: '', 9: '', 10: '1.5' },
      11: 'Zürich ✓',
    });
    expect((await port.claim(ONE)).jobs.map(({ limitKey }) => limitKey).sort()).toEqual(
      ['', '1.5', '7', 'Zürich ✓', 'acme', long].sort(),
    );
  });

  it('never runs more of a key than its limit, and takes the next one when a task ends', async () => {
    const port = await Port.open(await aDatabase(), planOf('status'));
    await port.planned(things('aaab'));
    const first = await port.claim(ONE);
    expect(keysOf(first)).toBe('ab');
    const blocked = await port.claim(ONE);
    expect(blocked).toMatchObject({ jobs: [], more: false });
    expect(blocked.heldUp?.get('t')).toBeNull();
    await port.settle(present(first.jobs.find(({ limitKey }) => limitKey === 'a')));
    const second = await port.claim(ONE);
    expect(keysOf(second)).toBe('a');
    await port.settle(present(second.jobs[0]), { status: 'failed', by: 'reclaimer' });
    const third = await port.claim(ONE);
    expect(keysOf(third)).toBe('a');
    await port.settle(present(third.jobs[0]), { status: 'pending', scheduledAt: new Date(0) });
    expect(keysOf(await port.claim(ONE))).toBe('a');
    expect(keysOf(await port.claim({ concurrency: 3 }))).toBe('');
  });

  it('keeps the limit whatever many instances claim at once', async () => {
    const port = await Port.open(await aDatabase(), planOf('status'));
    await port.planned(things('abc'.repeat(8)));
    let left = 24;
    await Promise.all(
      Array.from({ length: 4 }, async () => {
        while (left > 0) {
          const { jobs } = await port.claim({ concurrency: 2 }, 4);
          const running = await port.database.tasks();
          for (const key of ['a', 'b', 'c']) {
            const ofKey = running.filter(
              (task) => task.status === 'processing' && (task['limitKey'] ?? task['limit_key']) === key,
            );
            expect(ofKey.length).toBeLessThanOrEqual(2);
          }
          await Promise.all(jobs.map((job) => port.settle(job)));
          left -= jobs.length;
        }
      }),
    );
    expect(left).toBe(0);
  });

  it('lets keys take turns', async () => {
    const port = await Port.open(await aDatabase(), planOf('status'));
    await port.planned(things('f'.repeat(20)));
    await port.planned(things('abc', 21));
    const first = await port.claim({}, 4);
    const second = await port.claim({}, 4);
    const taken = [...first.jobs, ...second.jobs].map(({ limitKey }) => limitKey);
    expect(new Set(taken)).toEqual(new Set(['f', 'a', 'b', 'c']));
  });

  it('starts no more of a key than its rate, and says when the next may start', async () => {
    const port = await Port.open(await aDatabase(), planOf('status'));
    await port.planned(things('aaab'));
    const rule: KeyRule = { rate: { limit: 1, perMs: 60_000, burst: 1 } };
    const first = await port.claim(rule);
    expect(keysOf(first)).toBe('ab');
    for (const task of first.jobs) await port.settle(task);
    const second = await port.claim(rule);
    expect(second.jobs).toEqual([]);
    const free = second.heldUp?.get('t')?.getTime() ?? 0;
    expect(free - second.cluster.now.getTime()).toBeGreaterThan(50_000);
    const uses = await port.limits.keys(TASK, rule, ['a']);
    expect(uses).toMatchObject([{ key: 'a', running: 0, due: 2 }]);
    expect(uses[0]?.rateFreeAt).toBeInstanceOf(Date);
  });

  it('gives a start of a key back whose handler was not called, and once only', async () => {
    const port = await Port.open(await aDatabase(), planOf('status'));
    await port.planned(things('aa'));
    const rule: KeyRule = { rate: { limit: 1, perMs: 3_600_000, burst: 1 } };
    const first = present((await port.claim(rule)).jobs[0]);
    expect((await port.claim(rule)).jobs).toEqual([]);
    const back = { status: 'pending', scheduledAt: new Date(0), takeBack: true, unstarted: true } as const;
    await port.settle(first, back);
    // After a lost answer.
    await port.settle(first, back);
    const again = await until('the start is granted again', async () => {
      const [task] = (await port.claim(rule)).jobs;
      return task ?? false;
    });
    expect((await port.claim(rule)).jobs).toEqual([]);
    await port.settle(again, { status: 'pending', scheduledAt: new Date(0), takeBack: true });
    expect((await port.claim(rule)).jobs).toEqual([]);
  });

  it('gives a pending task the key of the last change, and a running one at its end', async () => {
    const port = await Port.open(await aDatabase(), planOf('status'));
    await port.planned(things('ab'));
    const { docs } = port.database;
    await docs.updateOne({ _id: 2 }, { $set: { status: 'c' } });
    await port.replan();
    expect(await port.keys()).toEqual({ 1: 'a', 2: 'c' });
    const running = present((await port.claim(ONE)).jobs.find(({ limitKey }) => limitKey === 'a'));
    await docs.updateOne({ _id: 1 }, { $set: { status: 'd' } });
    await port.planned(things('ad', 3));
    expect(await port.keys()).toMatchObject({ 1: 'a' });
    // The first one runs under its old key yet, so only the one of the new key may start.
    const others = await port.claim(ONE);
    expect(keysOf(others)).toBe('d');
    await port.settle(running);
    expect(await port.keys()).toMatchObject({ 1: 'd' });
    expect(keysOf(await port.claim(ONE))).toBe('a');
    await port.settle(present(others.jobs[0]));
    const again = await port.claim(ONE);
    expect(again.jobs.map(({ sourceDocId }) => sourceDocId)).toEqual([1]);
  });

  it('counts tasks that were planned before their definition had a key as those of one key', async () => {
    const port = await Port.open(await aDatabase(), planOf(undefined));
    await port.planned(things('aab'));
    expect(await port.keys()).toEqual({ 1: undefined, 2: undefined, 3: undefined });
    await port.limits.repairKeys?.(TASK, ONE);
    expect((await port.claim(ONE)).jobs).toHaveLength(1);
    expect((await port.claim(ONE)).jobs).toEqual([]);
    expect((await port.claim({ concurrency: 2 })).jobs).toHaveLength(1);
  });

  it('gives existing tasks their keys when they are planned again, without running them again', async () => {
    const port = await Port.open(await aDatabase(), planOf(undefined));
    await port.planned(things('aab'));
    const done = present((await port.claim(undefined, 1)).jobs[0]);
    await port.settle(done);
    port.plan = planOf('status');
    await port.replan();
    expect(await port.keys()).toEqual({ 1: 'a', 2: 'a', 3: 'b' });
    expect(keysOf(await port.claim(ONE))).toBe('ab');
    expect(await port.tasks.count({ status: ['completed'] })).toBe(1);
  });

  it('plans several tasks together, each with its own key', async () => {
    const byStatus = planOf('status');
    const port = await Port.open(await aDatabase(), byStatus);
    const plans = [
      byStatus,
      { ...planOf('n'), task: 'by-number', watchProjection: { n: 1 } },
      { ...planOf(undefined), task: 'without' },
    ];
    await port.reactive.prepare(plans);
    await port.database.docs.insertMany([{ _id: 1, status: 'a', n: 4 }]);
    const { ids } = await port.reactive.planning.documents(byStatus.source, undefined, 10);
    const { planning } = port.reactive;
    const together = async (): Promise<void> => {
      const batch = { present: ids, left: [] };
      const isDone = (await planning.planTogether?.(plans, batch, 10_000)) ?? false;
      if (!isDone) for (const plan of plans) await planning.plan(plan, ids, 10_000);
    };
    const keys = async (): Promise<Record<string, unknown>> =>
      Object.fromEntries(
        (await port.database.tasks()).map((task) => [
          String(task['task']),
          (task['limitKey'] ?? task['limit_key'] ?? null) as unknown,
        ]),
      );
    await together();
    expect(await keys()).toEqual({ t: 'a', 'by-number': '4', without: null });
    await port.database.docs.updateOne({ _id: 1 }, { $set: { status: 'b' } });
    await together();
    expect(await keys()).toEqual({ t: 'b', 'by-number': '4', without: null });
  });

  it('takes nothing of a paused task, nor after the time that a limit ends', async () => {
    const port = await Port.open(await aDatabase(), planOf('status'));
    await port.planned(things('ab'));
    await port.tasks.pause('t');
    expect((await port.claim({})).jobs).toEqual([]);
    await port.tasks.resume('t');
    expect((await port.claim({}, 5, { notAfter: new Date(Date.now() - 60_000) })).jobs).toEqual([]);
    expect((await port.claim({}, 5, { notAfter: ahead(60_000) })).jobs).toHaveLength(2);
  });

  it('finds the one key that can run among many that cannot', async () => {
    const port = await Port.open(await aDatabase(), planOf('n'));
    const many = (from: number): Thing[] => Array.from({ length: 60 }, (_, n) => ({ _id: from + n, n }));
    await port.planned([...many(1), ...many(101)]);
    expect((await port.claim(ONE, 60)).jobs).toHaveLength(60);
    await port.planned([{ _id: 500, n: 77 }]);
    expect(keysOf(await port.claim(ONE, 5))).toBe('77');
    expect(await port.claim(ONE, 5)).toMatchObject({ jobs: [], more: false });
  });

  it('lists the keys that wait longest, and lets a task go on whose deletion freed its key', async () => {
    const port = await Port.open(await aDatabase(), planOf('status'));
    await port.planned(things('aab'));
    const [running] = (await port.claim(ONE, 1)).jobs;
    const held = present(running?.limitKey);
    const uses = await port.limits.keys(TASK, ONE, { limit: 10 });
    expect(uses.find(({ key }) => key === held)).toMatchObject({ running: 1 });
    expect(uses.every(({ due }) => due > 0)).toBe(held === 'a');
    expect(await port.limits.keys(TASK, ONE, ['nobody'])).toSatisfy(
      (list: readonly { readonly due: number }[]) => list.every(({ due }) => due === 0),
    );
    await port.settle(present(running));
    await until('the other key runs too', async () => keysOf(await port.claim(ONE)).length > 0);
  });
});
