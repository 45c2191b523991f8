import { expect, it } from 'vitest';
import { documentIndex } from '../../../src/mongodb/reactive/sources.js';
import { until } from '../../support/mills.js';
import { thingsFixture } from '../things-fixture.js';

const TASKS = Array.from({ length: 12 }, (_, at) => `t${String(at)}`);

it('plans an update for twelve tasks on a collection with two statements, by an index of documents', async () => {
  const { db, docs, stored, mill: aMill } = thingsFixture();
  const mill = aMill();
  for (const [at, task] of TASKS.entries())
    await mill.reactiveTask({
      task,
      collection: 'things',
      debounce: '1h',
      filter: { kind: at % 2 === 0 ? 'even' : 'odd' },
      handler: () => undefined,
    });
  await docs.insertOne({ _id: 1, kind: 'even' });
  await mill.start();
  await until(
    'all tasks are reconciled',
    async () =>
      (await stored.countDocuments({ matched: true })) === 6 &&
      (await mill.tasks.planning()).reconciling.length === 0,
  );
  await until('the index is there', async () =>
    (await stored.indexes()).some(({ name }) => name === documentIndex.name),
  );
  await db.command({ profile: 2 });
  await docs.updateOne({ _id: 1 }, { $set: { kind: 'odd' } });
  await until(
    'each task has noticed',
    async () =>
      (await stored.countDocuments({ matched: true })) === 6 &&
      (await stored.countDocuments({ matched: false })) === 6,
  );
  await db.command({ profile: 0 });
  const commands = await db.collection('system.profile').find({ op: 'command' }).toArray();
  const plans = commands.filter(({ command }) =>
    JSON.stringify((command as { pipeline?: unknown }).pipeline ?? []).includes('$merge'),
  );
  expect(plans).toHaveLength(2);
  expect(await stored.distinct('task', { matched: true })).toEqual(
    TASKS.filter((_, at) => at % 2 === 1).sort(),
  );
});
