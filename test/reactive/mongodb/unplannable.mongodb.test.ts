import type { Document } from 'mongodb';
import { describe, expect, it } from 'vitest';
import { Fixture } from '../fixture.js';

const ONCE = { type: 'fixed', interval: 1, maxAttempts: 1 } as const;
/** Fails if `n` is 0. */
const DIVIDES = { $expr: { $gt: [{ $divide: [10, '$n'] }, 1] } };
const LARGE = 'x'.repeat(15_500_000);

const failed = (fixture: Fixture, id: unknown): Promise<Document> => fixture.settled('things', id, 'failed');

describe('unplannable dead letters on MongoDB', () => {
  it.each([
    ['the filter fails', { filter: DIVIDES }, { n: 0 }, { n: 2 }, 'divide by zero'],
    ['its snapshot is too large', {}, { n: 2, body: LARGE }, { n: 2, body: '' }, 'define watchProjection'],
  ])(
    'an unplannable dead letter ignores retries, and runs once it can be planned: %s',
    async (_what, definition, bad, good, reason) => {
      const fixture = new Fixture();
      const things = fixture.collection('things');
      let fails = true;
      const mill = await fixture.started({
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
      await Promise.all([failed(fixture, 'bad'), failed(fixture, 'ran')]);
      fails = false;
      const before = await fixture.task('things', 'bad');
      expect(await mill.retryReactiveTasks({ status: 'failed' })).toEqual({ modifiedCount: 1 });
      await fixture.ran('ran', 2);
      await fixture.settled('things', 'ran');
      expect(await mill.retryReactiveTasks({ task: 'task' })).toEqual({ modifiedCount: 1 });
      await fixture.ran('ran', 3);
      await fixture.quiet();
      expect(await fixture.task('things', 'bad')).toEqual(before);
      expect(before?.['lastError']).toContain(reason);
      expect(fixture.of('bad')).toEqual([]);
      await things.updateOne({ _id: 'bad' }, { $set: good });
      await fixture.ran('bad');
      await fixture.settled('things', 'bad');
      expect(await mill.retryReactiveTasks({ _id: { task: 'task', id: 'bad' } })).toEqual({
        modifiedCount: 1,
      });
      await fixture.ran('bad', 2);
    },
  );

  it('an unplannable dead letter ignores a new version of the handler', async () => {
    const fixture = new Fixture();
    const definition = { collection: 'things', filter: DIVIDES } as const;
    const first = await fixture.started(definition);
    await fixture.collection('things').insertMany([
      { _id: 'bad', n: 0 },
      { _id: 'good', n: 1 },
    ]);
    await failed(fixture, 'bad');
    await fixture.settled('things', 'good');
    await first.stop();
    await fixture.started({
      ...definition,
      evolution: { handlerVersion: 2, onHandlerVersionChange: 'reprocess_all' },
    });
    await fixture.ran('good', 2);
    await fixture.quiet();
    expect(await fixture.task('things', 'bad')).toMatchObject({ status: 'failed' });
  });

  it('an unplannable dead letter runs under a definition that can plan it', async () => {
    const fixture = new Fixture();
    const first = await fixture.started({ collection: 'things' });
    await fixture.collection('things').insertOne({ _id: 1, n: 1, body: LARGE });
    await failed(fixture, 1);
    await first.stop();
    await fixture.started({ collection: 'things', watchProjection: { n: 1 } });
    await fixture.ran(1);
    await fixture.settled('things', 1);
  });

  it.each([
    [
      'does not match any more',
      (fixture: Fixture) => fixture.collection('things').updateOne({ _id: 1 }, { $set: { n: 100 } }),
    ],
    ['is gone', (fixture: Fixture) => fixture.collection('things').deleteOne({ _id: 1 })],
  ])('a retry clears an unplannable dead letter whose document %s', async (_what, change) => {
    for (const collation of [undefined, { locale: 'en', strength: 2 }]) {
      const fixture = new Fixture();
      if (collation !== undefined) await fixture.db.createCollection('things', { collation });
      const mill = await fixture.started({ collection: 'things', filter: DIVIDES });
      await fixture.collection('things').insertOne({ _id: 1, n: 0 });
      await failed(fixture, 1);
      await change(fixture);
      await fixture.quiet();
      expect(await mill.retryReactiveTasks({ status: 'failed' })).toEqual({ modifiedCount: 1 });
      await fixture.settled('things', 1);
      expect(fixture.of(1)).toEqual([]);
    }
  });
});
