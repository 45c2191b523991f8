import { describe, expect, it } from 'vitest';
import { until } from '../../support/mills.js';
import { keepLines } from '../mills.js';
import { Fixture } from '../fixture.js';

/** Whatever a later release writes there. */
const LATER = { v: 2, shape: 'of tomorrow' };
const said = (lines: readonly { readonly text: string }[]): number =>
  lines.filter(({ text }) => /pending tasks of a newer schema version/u.test(text)).length;

describe('tasks of a later schema version', () => {
  it('ignores a task of a later schema version, runs the others, and logs it once', async () => {
    const fixture = new Fixture();
    const { logger, lines } = keepLines();
    const mill = await fixture.started({ collection: 'things' }, { logger });
    await mill.tasks.pause('task');
    await fixture.collection('things').insertMany([{ _id: 'later' }, { _id: 'ours' }]);
    await until('both are planned', async () => (await fixture.tasks('things').countDocuments()) === 2);
    await fixture.tasks('things').updateOne({ sourceDocId: 'later' }, { $set: LATER });
    await mill.tasks.resume('task');
    await fixture.ran('ours');
    await until('it is said', () => said(lines) > 0);
    await fixture.quiet();
    await fixture.collection('things').insertOne({ _id: 'next' });
    await fixture.ran('next');
    expect(fixture.of('later')).toEqual([]);
    expect(await fixture.task('things', 'later')).toMatchObject({ ...LATER, status: 'pending', attempts: 0 });
    expect(said(lines)).toBe(1);
  });

  it('a due task of a later schema version does not keep an instance busy', async () => {
    const fixture = new Fixture();
    const mill = await fixture.started({ collection: 'things' });
    await fixture.collection('things').insertOne({ _id: 1 });
    await fixture.settled('things', 1);
    await fixture
      .tasks('things')
      .updateOne({}, { $set: { ...LATER, status: 'pending', scheduledAt: new Date(0) } });
    const before = mill.health().claims.total;
    await fixture.quiet();
    // A marker costs a claim or two; a due task that cannot be claimed would be tried for without end.
    expect(mill.health().claims.total - before).toBeLessThan(20);
  });

  it.each([
    [
      'its document changes',
      (fixture: Fixture) => fixture.collection('things').updateOne({ _id: 1 }, { $set: { n: 2 } }),
    ],
    [
      'its document leaves the filter',
      (fixture: Fixture) => fixture.collection('things').updateOne({ _id: 1 }, { $set: { n: 0 } }),
    ],
    [
      'its document cannot be planned',
      (fixture: Fixture) => fixture.collection('things').updateOne({ _id: 1 }, { $set: { n: 'x' } }),
    ],
    ['its document is deleted', (fixture: Fixture) => fixture.collection('things').deleteOne({ _id: 1 })],
  ])('leaves a task of a later schema version unchanged when %s', async (_what, change) => {
    for (const collation of [undefined, { locale: 'en', strength: 2 }]) {
      const fixture = new Fixture();
      if (collation !== undefined) await fixture.db.createCollection('things', { collation });
      await fixture.started({
        collection: 'things',
        filter: { $gt: [{ $add: ['$n', 0] }, 0] },
        cleanupPolicy: { deleteWhen: 'sourceDocumentDeletedOrNoLongerMatching', keepFor: 0 },
      });
      await fixture.collection('things').insertOne({ _id: 1, n: 1 });
      await fixture.settled('things', 1);
      await fixture.quiet();
      await fixture.tasks('things').updateOne({}, { $set: LATER });
      const before = await fixture.task('things', 1);
      await change(fixture);
      await fixture.quiet();
      expect(await fixture.task('things', 1)).toEqual(before);
    }
  });

  it('neither a retry nor a new handler version resets a task of a later schema version', async () => {
    const fixture = new Fixture();
    const mill = await fixture.started({ collection: 'things' });
    await fixture.collection('things').insertMany([{ _id: 'later' }, { _id: 'ours' }]);
    await Promise.all(['later', 'ours'].map((id) => fixture.settled('things', id)));
    await fixture.tasks('things').updateOne({ sourceDocId: 'later' }, { $set: LATER });
    const before = await fixture.task('things', 'later');
    expect(await mill.retryReactiveTasks({ task: 'task' })).toEqual({ modifiedCount: 1 });
    await fixture.ran('ours', 2);
    await fixture.settled('things', 'ours');
    await mill.stop();
    await fixture.started({
      collection: 'things',
      evolution: { handlerVersion: 2, onHandlerVersionChange: 'reprocess_all' },
    });
    await fixture.ran('ours', 3);
    await fixture.quiet(['things']);
    expect(await fixture.task('things', 'later')).toEqual(before);
  });
});
