import { describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/core/clock.js';
import { StoreError } from '../../../src/core/errors.js';
import { ChangePlanner } from '../../../src/reactive/planner/changes/change-planner.js';
import type { Change, PlanStore, Poisoned, TaskPlan } from '../../../src/store/reactive/reactive.js';

const aPlan = (task: string): TaskPlan => ({
  task,
  source: { collection: 'things' },
  filter: { kind: task },
  debounce: { waitMs: 0, maxWaitMs: 0 },
  resetRetriesOnDataChange: true,
  cleanup: { deleteWhen: 'never', keepForMs: 1_000 },
  evolution: { handlerVersion: 1, onHandlerVersionChange: 'none', reconcileOnTriggerChange: true },
});

interface Scene {
  /** What was asked of the store: the names of the tasks, and how many documents were given. */
  readonly calls: string[];
  readonly refused: string[];
  readonly planner: ChangePlanner;
}

/** A planner of these tasks. A statement fails if `fails` says so of one of its tasks and documents. */
function scene(
  count: number,
  fails: (task: string, id: unknown) => 'poisoned' | 'refused' | 'passing' | undefined = () => undefined,
): Scene {
  const plans = Array.from({ length: count }, (_, at) => aPlan(`t${String(at)}`));
  const calls: string[] = [];
  const refused: string[] = [];
  const planning = {
    planTogether: (of, { present, left }) => {
      calls.push(`${String(of.length)} together: ${String(present.length)} and ${String(left.length)}`);
      return Promise.resolve(!of.some(({ task }) => present.some((id) => fails(task, id) !== undefined)));
    },
    plan: ({ task }, ids) => {
      calls.push(`plan ${task}`);
      const poisoned: Poisoned[] = [];
      for (const id of ids) {
        const fault = fails(task, id);
        if (fault === 'poisoned') poisoned.push({ id, key: String(id), reason: 'no', blocked: false });
        else if (fault !== undefined)
          return Promise.reject(new StoreError('no', { transient: fault === 'passing' }));
      }
      return Promise.resolve(poisoned);
    },
    unmatch: ({ task }) => {
      calls.push(`unmatch ${task}`);
      return Promise.resolve([]);
    },
    park: () => Promise.resolve(),
  } as Partial<PlanStore> as PlanStore;
  const planner = new ChangePlanner({
    planning,
    clock: systemClock,
    leaseMs: 30_000,
    blocked: { add: () => undefined },
    host: {
      leaseLeftMs: 30_000,
      plansOn: () => plans,
      refused: ({ task }) => Promise.resolve(void refused.push(task)),
      error: () => undefined,
    },
  });
  return { calls, refused, planner };
}

const changed = (kind: Change['kind'], ...ids: readonly number[]): readonly Change[] =>
  ids.map((id) => ({ collection: 'things', id, key: String(id), kind }));

describe('planning of many tasks on one collection', () => {
  it.each([2, 10, 100])('plans a batch of changes of %i tasks with one call', async (count) => {
    const { calls, planner } = scene(count);
    await planner.changes('', [...changed('insert', 1, 2), ...changed('update', 3), ...changed('delete', 4)]);
    expect(calls).toEqual([`${String(count)} together: 3 and 2`]);
  });

  it('divides more than a hundred tasks, and plans a single one by itself', async () => {
    const many = scene(150);
    await many.planner.changes('', changed('insert', 1));
    expect(many.calls).toEqual(['100 together: 1 and 0', '50 together: 1 and 0']);
    const one = scene(1);
    await one.planner.changes('', changed('update', 1));
    expect(one.calls).toEqual(['plan t0', 'unmatch t0']);
  });

  it('plans each task by itself if a shared statement fails, and sets apart the task at fault', async () => {
    const { calls, planner } = scene(3, (task, id) => (task === 't1' && id === 1 ? 'poisoned' : undefined));
    await planner.changes('', changed('insert', 1, 2));
    expect(calls).toEqual(['3 together: 2 and 0', 'plan t0', 'plan t1', 'plan t2']);
    calls.length = 0;
    await planner.changes('', changed('insert', 1));
    expect(calls.sort()).toEqual(['2 together: 1 and 0', 'plan t1']);
  });

  it('plans on together if every task fails on a document', async () => {
    const { calls, planner } = scene(2, (_task, id) => (id === 1 ? 'poisoned' : undefined));
    await planner.changes('', changed('insert', 1));
    calls.length = 0;
    await planner.changes('', changed('insert', 2));
    expect(calls).toEqual(['2 together: 1 and 0']);
  });

  it('reports a task that the server refuses, and plans the others', async () => {
    const { calls, refused, planner } = scene(3, (task) => (task === 't2' ? 'refused' : undefined));
    await planner.changes('', changed('insert', 1));
    expect(calls).toEqual(['3 together: 1 and 0', 'plan t0', 'plan t1', 'plan t2']);
    expect(refused).toEqual(['t2']);
  });

  it('repeats a batch in which one task has an error that may pass, and plans that task by itself', async () => {
    const { calls, planner } = scene(3, (task) => (task === 't0' ? 'passing' : undefined));
    await expect(planner.changes('', changed('insert', 1))).rejects.toThrow(StoreError);
    calls.length = 0;
    await expect(planner.changes('', changed('insert', 1))).rejects.toThrow(StoreError);
    expect(calls.sort()).toEqual(['2 together: 1 and 0', 'plan t0']);
  });

  it('plans fewer documents with one statement after one that failed', async () => {
    const { calls, planner } = scene(2, (_task, id) => (id === 0 ? 'poisoned' : undefined));
    await planner.changes('', changed('insert', 0));
    calls.length = 0;
    await planner.changes('', changed('insert', ...Array.from({ length: 700 }, (_, at) => at + 1)));
    expect(calls).toEqual(['2 together: 500 and 0', '2 together: 200 and 0']);
  });

  it('reconciles documents of several tasks with one call, and says which tasks have to be planned alone', async () => {
    const { calls, planner } = scene(2, (task, id) => (task === 't1' && id === 2 ? 'poisoned' : undefined));
    const plans = [aPlan('t0'), aPlan('t1')];
    expect(await planner.planTogether(plans, [1, 3])).toEqual(new Set(plans));
    expect(calls).toEqual(['2 together: 2 and 0']);
    expect(await planner.planTogether(plans, [1, 2])).toEqual(new Set());
  });
});
