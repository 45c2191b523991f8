import { expect, it } from 'vitest';
import { FatalError, type FoundTask } from '../../../src/index.js';
import { until } from '../../support/mills.js';
import { eachDatabase } from './test-databases.js';

const FAST = { pollInterval: { min: 10, max: 1_000 } } as const;

eachDatabase('reading tasks', (aDatabase) => {
  it('tasks.stats, errors, find, document, paused, planning and why agree on the state of tasks', async () => {
    const database = await aDatabase();
    const mill = database.mill(FAST);
    await mill.reactiveTask({
      task: 'sync',
      collection: 'things',
      debounce: 0,
      handler: ({ docId }) => {
        if (Number(docId) > 3) throw new FatalError(`No room for ${String(docId)}`);
      },
    });
    await database.docs.insertMany(
      [1, 2, 3, 4, 5].map((_id) => ({ _id, status: _id % 2 === 0 ? 'even' : 'odd' })),
    );
    await mill.start();
    const counts = async (): Promise<string> => {
      const stats = await mill.tasks.stats();
      return stats
        .map(({ task, counts: own }) => `${task} ${String(own.completed)} ${String(own.failed)}`)
        .join();
    };
    await until('all have ended', async () => (await counts()) === 'sync 3 2');

    const { groups } = await mill.tasks.errors();
    expect(groups).toMatchObject([
      { name: 'sync', pattern: 'No room for …', count: 2, search: 'No room for' },
    ]);
    expect(await mill.tasks.count({}, { limit: 2 })).toBe(2);
    expect(await mill.tasks.count({ status: 'failed' })).toBe(2);

    const odd = await mill.tasks.find({ source: { status: 'odd' } });
    expect(odd.items.map(({ sourceDocId }) => Number(sourceDocId)).sort()).toEqual([1, 3, 5]);
    expect(await mill.tasks.count({ source: { status: 'odd', n: 5 } })).toBe(0);
    expect((await mill.tasks.find({ source: { _id: 4 } })).items).toHaveLength(1);
    await expect(mill.tasks.find({ source: { $where: '1' } })).rejects.toThrow('source');

    const [four] = (await mill.tasks.find({ source: { _id: 4 } })).items as [FoundTask];
    expect((await mill.tasks.find({ id: four.id })).items).toEqual([four]);
    expect((await mill.tasks.find({ id: 'rubbish' })).items).toEqual([]);
    expect(await mill.tasks.document(four.id)).toMatchObject({ document: { status: 'even' } });
    const long = { from: new Date(0), to: new Date(1) };
    expect((await mill.tasks.find({ scheduledAt: long })).items).toEqual([]);

    await mill.tasks.pause('sync');
    expect(await mill.tasks.paused()).toEqual([{ task: 'sync', until: null }]);
    expect((await mill.tasks.retryMany({ id: four.id })).count).toBe(1);
    // A claim that was under way at the pause hands back what it took.
    const reasons = await until('it waits', async () => {
      const why = await mill.why({ kind: 'tasks', id: four.id });
      return why.length > 0 && why;
    });
    expect(reasons[0]?.code).toBe('paused');
    const planning = await until('all were looked at', async () => {
      const now = await mill.tasks.planning();
      return now.reconciling.length === 0 && now;
    });
    expect(planning).toMatchObject({ leader: mill.instanceId, reconciling: [] });
    await mill.tasks.resume('sync');
    await until('it has failed again', async () => (await counts()) === 'sync 3 2');
    expect(await mill.why({ kind: 'tasks', id: four.id })).toEqual([]);
    expect(await mill.instances()).toMatchObject([{ tasks: ['sync'], leader: true, alive: true }]);
  });

  it('pages of tasks by due time are complete, ordered and without repeats', async () => {
    const database = await aDatabase();
    const mill = database.mill(FAST);
    for (const [task, collection] of [
      ['a', 'things'],
      ['b', 'things'],
      ['c', 'others'],
    ] as const)
      await mill.reactiveTask({
        task,
        collection,
        debounce: 0,
        handler: ({ docId }) => {
          if (Number(docId) % 3 === 0) throw new FatalError('no');
        },
      });
    const things = Array.from({ length: 7 }, (_, _id) => ({ _id }));
    await Promise.all([database.docs.insertMany(things), database.others.insertMany(things)]);
    await mill.start();
    await until(
      'all have ended',
      async () => (await mill.tasks.count({ status: ['completed', 'failed'] })) === 21,
    );
    for (const direction of [1, -1] as const) {
      const seen: FoundTask[] = [];
      for (let cursor: string | null | undefined; cursor !== null;) {
        const page = await mill.tasks.find(
          {},
          { limit: 4, sort: { scheduledAt: direction }, ...(cursor === undefined ? {} : { cursor }) },
        );
        seen.push(...page.items);
        cursor = page.next;
      }
      expect(new Set(seen.map(({ id }) => id)).size).toBe(21);
      expect(seen).toHaveLength(21);
      const times = seen.map(({ scheduledAt }) => direction * scheduledAt.getTime());
      expect(times).toEqual([...times].sort((a, b) => a - b));
    }
  });
});
