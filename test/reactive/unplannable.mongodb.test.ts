import type { Document } from 'mongodb';
import { describe, expect, it } from 'vitest';
import { Plant } from './plant.js';

const ONCE = { type: 'fixed', interval: 1, maxAttempts: 1 } as const;
/** Fails if `n` is 0. */
const DIVIDES = { $expr: { $gt: [{ $divide: [10, '$n'] }, 1] } };
const LARGE = 'x'.repeat(15_500_000);

const failed = (plant: Plant, id: unknown): Promise<Document> => plant.settled('things', id, 'failed');

describe('unplannable dead letters on MongoDB', () => {
  it.each([
    ['the filter fails', { filter: DIVIDES }, { n: 0 }, { n: 2 }, 'divide by zero'],
    ['its snapshot is too large', {}, { n: 2, body: LARGE }, { n: 2, body: '' }, 'define watchProjection'],
  ])(
    'an unplannable dead letter ignores retries, and runs once it can be planned: %s',
    async (_what, definition, bad, good, reason) => {
      const plant = new Plant();
      const things = plant.collection('things');
      let fails = true;
      const mill = await plant.started({
        collection: 'things',
        retryPolicy: ONCE,
        ...definition,
        handler: ({ docId }) => {
          if (docId === 'ran' && fails) throw new Error('on purpose');
        },
      });
      await things.insertMany([
        { _id: 'bad', ...bad },
        { _id: 'ran', n: 1 },
      ]);
      await Promise.all([failed(plant, 'bad'), failed(plant, 'ran')]);
      fails = false;
      const before = await plant.task('things', 'bad');
      expect(await mill.retryReactiveTasks({ status: 'failed' })).toEqual({ modifiedCount: 1 });
      await plant.ran('ran', 2);
      await plant.settled('things', 'ran');
      expect(await mill.retryReactiveTasks({ task: 'task' })).toEqual({ modifiedCount: 1 });
      await plant.ran('ran', 3);
      await plant.quiet();
      expect(await plant.task('things', 'bad')).toEqual(before);
      expect(before?.['lastError']).toContain(reason);
      expect(plant.of('bad')).toEqual([]);
      await things.updateOne({ _id: 'bad' }, { $set: good });
      await plant.ran('bad');
      await plant.settled('things', 'bad');
      expect(await mill.retryReactiveTasks({ _id: { task: 'task', id: 'bad' } })).toEqual({
        modifiedCount: 1,
      });
      await plant.ran('bad', 2);
    },
  );

  it('an unplannable dead letter ignores a new version of the handler', async () => {
    const plant = new Plant();
    const definition = { collection: 'things', filter: DIVIDES } as const;
    const first = await plant.started(definition);
    await plant.collection('things').insertMany([
      { _id: 'bad', n: 0 },
      { _id: 'good', n: 1 },
    ]);
    await failed(plant, 'bad');
    await plant.settled('things', 'good');
    await first.stop();
    await plant.started({
      ...definition,
      evolution: { handlerVersion: 2, onHandlerVersionChange: 'reprocess_all' },
    });
    await plant.ran('good', 2);
    await plant.quiet();
    expect(await plant.task('things', 'bad')).toMatchObject({ status: 'failed' });
  });

  it('an unplannable dead letter runs under a definition that can plan it', async () => {
    const plant = new Plant();
    const first = await plant.started({ collection: 'things' });
    await plant.collection('things').insertOne({ _id: 1, n: 1, body: LARGE });
    await failed(plant, 1);
    await first.stop();
    await plant.started({ collection: 'things', watchProjection: { n: 1 } });
    await plant.ran(1);
    await plant.settled('things', 1);
  });

  it.each([
    [
      'does not match any more',
      (plant: Plant) => plant.collection('things').updateOne({ _id: 1 }, { $set: { n: 100 } }),
    ],
    ['is gone', (plant: Plant) => plant.collection('things').deleteOne({ _id: 1 })],
  ])('a retry clears an unplannable dead letter whose document %s', async (_what, change) => {
    for (const collation of [undefined, { locale: 'en', strength: 2 }]) {
      const plant = new Plant();
      if (collation !== undefined) await plant.db.createCollection('things', { collation });
      const mill = await plant.started({ collection: 'things', filter: DIVIDES });
      await plant.collection('things').insertOne({ _id: 1, n: 0 });
      await failed(plant, 1);
      await change(plant);
      await plant.quiet();
      expect(await mill.retryReactiveTasks({ status: 'failed' })).toEqual({ modifiedCount: 1 });
      await plant.settled('things', 1);
      expect(plant.of(1)).toEqual([]);
    }
  });
});
