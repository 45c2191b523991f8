import { describe, expect, it } from 'vitest';
import { until } from '../support/mills.js';
import { keepLines } from './mills.js';
import { Plant } from './plant.js';

/** Whatever a later release writes there. */
const LATER = { v: 2, shape: 'of tomorrow' };
const said = (lines: readonly { readonly text: string }[]): number =>
  lines.filter(({ text }) => /pending tasks of a newer schema version/u.test(text)).length;

describe('tasks of a later schema version', () => {
  it('ignores a task of a later schema version, runs the others, and logs it once', async () => {
    const plant = new Plant();
    const { logger, lines } = keepLines();
    const mill = await plant.started({ collection: 'things' }, { logger });
    await mill.tasks.pause('task');
    await plant.collection('things').insertMany([{ _id: 'later' }, { _id: 'ours' }]);
    await until('both are planned', async () => (await plant.tasks('things').countDocuments()) === 2);
    await plant.tasks('things').updateOne({ sourceDocId: 'later' }, { $set: LATER });
    await mill.tasks.resume('task');
    await plant.ran('ours');
    await until('it is said', () => said(lines) > 0);
    await plant.quiet();
    await plant.collection('things').insertOne({ _id: 'next' });
    await plant.ran('next');
    expect(plant.of('later')).toEqual([]);
    expect(await plant.task('things', 'later')).toMatchObject({ ...LATER, status: 'pending', attempts: 0 });
    expect(said(lines)).toBe(1);
  });

  it('a due task of a later schema version does not keep an instance busy', async () => {
    const plant = new Plant();
    const mill = await plant.started({ collection: 'things' });
    await plant.collection('things').insertOne({ _id: 1 });
    await plant.settled('things', 1);
    await plant
      .tasks('things')
      .updateOne({}, { $set: { ...LATER, status: 'pending', scheduledAt: new Date(0) } });
    const before = mill.health().claims.total;
    await plant.quiet();
    // A marker costs a claim or two; a due task that cannot be claimed would be tried for without end.
    expect(mill.health().claims.total - before).toBeLessThan(20);
  });

  it.each([
    [
      'its document changes',
      (plant: Plant) => plant.collection('things').updateOne({ _id: 1 }, { $set: { n: 2 } }),
    ],
    [
      'its document leaves the filter',
      (plant: Plant) => plant.collection('things').updateOne({ _id: 1 }, { $set: { n: 0 } }),
    ],
    [
      'its document cannot be planned',
      (plant: Plant) => plant.collection('things').updateOne({ _id: 1 }, { $set: { n: 'x' } }),
    ],
    ['its document is deleted', (plant: Plant) => plant.collection('things').deleteOne({ _id: 1 })],
  ])('leaves a task of a later schema version unchanged when %s', async (_what, change) => {
    for (const collation of [undefined, { locale: 'en', strength: 2 }]) {
      const plant = new Plant();
      if (collation !== undefined) await plant.db.createCollection('things', { collation });
      await plant.started({
        collection: 'things',
        filter: { $gt: [{ $add: ['$n', 0] }, 0] },
        cleanupPolicy: { deleteWhen: 'sourceDocumentDeletedOrNoLongerMatching', keepFor: 0 },
      });
      await plant.collection('things').insertOne({ _id: 1, n: 1 });
      await plant.settled('things', 1);
      await plant.quiet();
      await plant.tasks('things').updateOne({}, { $set: LATER });
      const before = await plant.task('things', 1);
      await change(plant);
      await plant.quiet();
      expect(await plant.task('things', 1)).toEqual(before);
    }
  });

  it('neither a retry nor a new handler version resets a task of a later schema version', async () => {
    const plant = new Plant();
    const mill = await plant.started({ collection: 'things' });
    await plant.collection('things').insertMany([{ _id: 'later' }, { _id: 'ours' }]);
    await Promise.all(['later', 'ours'].map((id) => plant.settled('things', id)));
    await plant.tasks('things').updateOne({ sourceDocId: 'later' }, { $set: LATER });
    const before = await plant.task('things', 'later');
    expect(await mill.retryReactiveTasks({ task: 'task' })).toEqual({ modifiedCount: 1 });
    await plant.ran('ours', 2);
    await plant.settled('things', 'ours');
    await mill.stop();
    await plant.started({
      collection: 'things',
      evolution: { handlerVersion: 2, onHandlerVersionChange: 'reprocess_all' },
    });
    await plant.ran('ours', 3);
    await plant.quiet(['things']);
    expect(await plant.task('things', 'later')).toEqual(before);
  });
});
