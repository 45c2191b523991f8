import { describe, expect, it } from 'vitest';
import { until } from '../../support/mills.js';
import { thingsFixture } from '../things-fixture.js';

const AT_ONCE = { collection: 'things', debounce: 0 } as const;

describe('retryReactiveTasks of thousands of tasks', () => {
  it.each([
    ['failed', ['failed']],
    ['pending, most of them for later', ['pending']],
    ['of two states', ['failed', 'pending']],
    ['of any state', undefined],
  ] as const)('resets more than one batch of tasks, each once: %s', async (_what, status) => {
    const { stored, mill: aMill } = thingsFixture();
    const mill = aMill();
    await mill.reactiveTask({ ...AT_ONCE, task: 't', handler: () => undefined });
    // Before the start, so that no claim is under way.
    await mill.tasks.pause('t');
    await mill.start();
    const states = status ?? ['completed', 'failed', 'pending'];
    const createdAt = new Date();
    await stored.insertMany(
      Array.from({ length: 2_500 }, (_, id) => {
        const at = new Date(Date.now() + (id - 500) * 1_000);
        return {
          _id: { task: 't', id } as never,
          ...{ v: 1, task: 't', sourceDocId: id, status: states[id % states.length], attempts: 5 },
          ...{ scheduledAt: at, initialScheduledAt: at, createdAt, updatedAt: createdAt, lockedAt: null },
        };
      }),
    );
    const filter = { task: 't', ...(status === undefined ? {} : { status }) };
    expect(await mill.retryReactiveTasks(filter)).toEqual({ modifiedCount: 2_500 });
    expect(await stored.countDocuments({ status: 'pending', attempts: 0 })).toBe(2_500);
  });

  it('reruns thousands of completed tasks exactly once, paused or not', async () => {
    const { docs, stored, mill: aMill } = thingsFixture();
    const mill = aMill();
    const runs = new Map<unknown, number>();
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      handler: ({ docId }) => runs.set(docId, (runs.get(docId) ?? 0) + 1),
    });
    await docs.insertMany(Array.from({ length: 3_000 }, (_, _id) => ({ _id })));
    await mill.start();
    const completed = (): Promise<true> =>
      until('all are completed', async () => {
        const [all, open] = await Promise.all([
          stored.countDocuments({ status: 'completed' }),
          stored.countDocuments({ status: { $ne: 'completed' } }),
        ]);
        return all === 3_000 && open === 0;
      });
    await completed();
    await mill.tasks.pause('t');
    expect(await mill.retryReactiveTasks({ task: 't' })).toEqual({ modifiedCount: 3_000 });
    // What an unaware instance claims after the pause, it hands back.
    await until('all wait', async () => (await stored.countDocuments({ status: 'pending' })) === 3_000);
    await mill.tasks.resume('t');
    await completed();
    expect(new Set(runs.values())).toEqual(new Set([2]));
    expect(await mill.retryReactiveTasks({ all: true })).toEqual({ modifiedCount: 3_000 });
    await completed();
    expect(new Set(runs.values())).toEqual(new Set([3]));
  });
});
