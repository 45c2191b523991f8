import type { Document } from 'mongodb';
import { describe, expect, it } from 'vitest';
import type { Tidemill } from '../../../src/index.js';
import { gate, until } from '../../support/mills.js';
import { Fixture } from '../fixture.js';

/** Fails if `n` is 0. */
const DIVIDES = { $expr: { $gt: [{ $divide: [10, '$n'] }, 1] } };

describe('a filter that errors on one document', () => {
  it('parks a document on which the filter errors, and runs the rest of the batch', async () => {
    const fixture = new Fixture();
    const things = fixture.collection('things');
    await fixture.started({ collection: 'things', filter: DIVIDES });
    await things.insertMany(Array.from({ length: 60 }, (_, n) => ({ _id: n, n: n === 31 ? 0 : 1 })));
    await fixture.quiet(['things']);
    expect(fixture.runs.filter(({ task }) => task === 'task')).toHaveLength(59);
    const parked = await fixture.task('things', 31);
    expect(parked).toMatchObject({ status: 'failed', task: 'task', sourceDocId: 31, attempts: 0 });
    expect(parked?.['lastError']).toMatch(/could not be planned.*divide by zero/u);
    expect(fixture.errors.some(({ message }) => /cannot be planned/u.test(message))).toBe(true);
    // It is planned as soon as it can be.
    await things.updateOne({ _id: 31 }, { $set: { n: 2 } });
    await fixture.ran(31);
    expect(await fixture.settled('things', 31)).toMatchObject({ attempts: 1 });
  });

  it('parks a document on which the filter errors during a reconciliation', async () => {
    const fixture = new Fixture();
    await fixture
      .collection('things')
      .insertMany(Array.from({ length: 60 }, (_, n) => ({ _id: n, n: n === 31 ? 0 : 1 })));
    await fixture.started({ collection: 'things', filter: DIVIDES });
    await until('all others have run', () => fixture.runs.length === 59);
    expect(await fixture.settled('things', 31, 'failed')).toMatchObject({ attempts: 0 });
    await fixture.quiet();
  });

  it('a document on which the filter starts to error while its task runs blocks no other', async () => {
    const fixture = new Fixture();
    const things = fixture.collection('things');
    const [entered, leave] = [gate(), gate()];
    await fixture.started({
      collection: 'things',
      filter: DIVIDES,
      cleanupPolicy: { deleteWhen: 'sourceDocumentDeletedOrNoLongerMatching', keepFor: 0 },
      handler: async ({ docId }) => {
        if (docId !== 'runs') return;
        entered.open();
        await leave.promise;
      },
    });
    await things.insertMany([
      { _id: 'runs', n: 1 },
      { _id: 'rests', n: 1 },
    ]);
    await entered.promise;
    await fixture.ran('rests');
    await fixture.settled('things', 'rests');
    await things.updateMany({}, { $set: { n: 0 } });
    await things.insertOne({ _id: 'later', n: 1 });
    await fixture.ran('later');
    await fixture.quiet();
    leave.open();
    await fixture.quiet(['things']);
    await things.updateMany({}, { $set: { n: 3 } });
    await until(
      'they have run again',
      () => fixture.of('rests').length === 2 && fixture.of('runs').length === 2,
    );
  });

  it('a document on which the filter starts to error after planning blocks no claim', async () => {
    const fixture = new Fixture();
    const things = fixture.collection('things');
    const planner = fixture.mill();
    void fixture.define(planner, { collection: 'things', filter: DIVIDES });
    await planner.start({ roles: ['plan'] });
    await things.insertMany(Array.from({ length: 6 }, (_, n) => ({ _id: n, n: 1 })));
    await until('they are planned', async () => (await fixture.tasks('things').countDocuments()) === 6);
    await planner.stop();
    await things.updateOne({ _id: 3 }, { $set: { n: 0 } });
    const worker = fixture.mill();
    void fixture.define(worker, {
      collection: 'things',
      filter: DIVIDES,
      handler: async (context) => {
        await context.getDocument();
      },
    });
    await worker.start({ roles: ['work'] });
    for (const id of [0, 1, 2, 4, 5]) await fixture.settled('things', id);
    await until('it is not held', async () => (await fixture.task('things', 3))?.['status'] !== 'processing');
  });

  it('parks a document on which the filter errors in a source with a collation', async () => {
    const fixture = new Fixture();
    await fixture.db.createCollection('things', { collation: { locale: 'en', strength: 2 } });
    const things = fixture.collection('things');
    await fixture.started({ collection: 'things', filter: DIVIDES });
    await things.insertMany([
      { _id: 'a', n: 1 },
      { _id: 'b', n: 1 },
    ]);
    await Promise.all([fixture.ran('a'), fixture.ran('b')]);
    await fixture.quiet(['things']);
    await things.updateOne({ _id: 'b' }, { $set: { n: 0 } });
    await fixture.settled('things', 'b', 'failed');
    await things.updateOne({ _id: 'a' }, { $set: { n: 2 } });
    await fixture.ran('a', 2);
    await fixture.quiet();
  });
});

describe('a planning statement that the server refuses', () => {
  it('retries a refused planning statement until it is accepted, and parks no document', async () => {
    const fixture = new Fixture();
    await fixture.started({ collection: 'things' });
    await fixture.tasks('things').drop();
    await fixture.db.createCollection('things_tasks', { viewOn: 'markers', pipeline: [] });
    await fixture.collection('things').insertMany([{ _id: 1 }, { _id: 2 }]);
    await until('it was refused', () => fixture.errors.some(({ message }) => message.startsWith('plan:')));
    await fixture.db.dropCollection('things_tasks');
    await Promise.all([fixture.ran(1), fixture.ran(2)]);
    expect(fixture.errors.filter(({ message }) => message.includes('cannot be planned'))).toEqual([]);
  });
});

describe('large documents', () => {
  const near16 = (bytes: number): string => 'x'.repeat(bytes);

  it('a document of nearly 16 MB runs and is fetched with a small projection', async () => {
    const fixture = new Fixture();
    const things = fixture.collection('things');
    const fetched: number[] = [];
    await fixture.started({
      collection: 'things',
      filter: { n: { $gt: 0 } },
      watchProjection: { n: 1 },
      handler: async (context) => {
        fetched.push(((await context.getDocument())['body'] as string).length);
      },
    });
    const size = 16 * 1024 * 1024 - 60;
    await things.insertOne({ _id: 1, n: 1, body: near16(size) });
    await fixture.ran(1);
    await fixture.settled('things', 1);
    await things.updateOne({ _id: 1 }, { $set: { n: 2 } });
    await fixture.ran(1, 2);
    await fixture.settled('things', 1);
    expect(fetched).toEqual([size, size]);
    expect(fixture.errors).toEqual([]);
  });

  it('a document of nearly 16 MB without a projection fails with advice, and runs once it is smaller', async () => {
    const fixture = new Fixture();
    const things = fixture.collection('things');
    await fixture.started({ collection: 'things' });
    await things.insertMany([
      { _id: 'before' },
      { _id: 'large', body: near16(16 * 1024 * 1024 - 60) },
      { _id: 'after' },
    ]);
    await Promise.all([fixture.ran('before'), fixture.ran('after')]);
    const failed = await fixture.settled('things', 'large', 'failed');
    expect(failed['lastError']).toContain('define watchProjection');
    expect(fixture.of('large')).toEqual([]);
    await things.updateOne({ _id: 'large' }, { $set: { body: 'small' } });
    await fixture.ran('large');
    await fixture.settled('things', 'large');
    await things.updateOne({ _id: 'large' }, { $set: { body: near16(15_500_000) } });
    await fixture.settled('things', 'large', 'failed');
    expect(fixture.of('large')).toHaveLength(1);
  });

  it('several documents of 14 MB without a projection run in one batch', async () => {
    const fixture = new Fixture();
    const things = fixture.collection('things');
    await fixture.started({
      collection: 'things',
      handler: async (context) => {
        await context.getDocument();
      },
    });
    for (const _id of ['a', 'b', 'c']) await things.insertOne({ _id, body: near16(14_000_000) });
    await Promise.all(['a', 'b', 'c'].map((id) => fixture.settled('things', id)));
    await things.updateMany({}, { $set: { n: 1 } });
    for (const id of ['a', 'b', 'c']) await fixture.ran(id, 2);
    await fixture.quiet(['things']);
    expect(await fixture.tasks('things').distinct('status')).toEqual(['completed']);
  });
});

describe('a source with a collation', () => {
  const collation = { locale: 'en', strength: 2 } as const;
  const definition = (fetched: Document[]) =>
    ({
      collection: 'users',
      filter: { role: 'admin' },
      watchProjection: { name: 1, role: 1 },
      handler: async (context: { getDocument: () => Promise<Document> }) => {
        fetched.push(await context.getDocument());
      },
    }) as const;

  it("the filter uses the source's collation, and snapshots are compared exactly", async () => {
    const fixture = new Fixture();
    await fixture.db.createCollection('users', { collation });
    const users = fixture.collection('users');
    const fetched: Document[] = [];
    await fixture.started(definition(fetched));
    await users.insertMany([
      { _id: 'a', role: 'ADMIN', name: 'abc' },
      { _id: 'b', role: 'user', name: 'abc' },
    ]);
    await fixture.ran('a');
    await fixture.settled('users', 'a');
    expect(await fixture.task('users', 'b')).toBeNull();
    await users.updateOne({ _id: 'a' }, { $set: { name: 'ABC' } });
    await fixture.ran('a', 2);
    await fixture.settled('users', 'a');
    await users.updateOne({ _id: 'a' }, { $set: { other: 1 } });
    await fixture.quiet(['users']);
    expect(fixture.of('a')).toHaveLength(2);
    await users.updateOne({ _id: 'a' }, { $set: { role: 'user' } });
    await fixture.quiet(['users']);
    expect(await fixture.task('users', 'a')).toMatchObject({ matched: false });
    await users.updateOne({ _id: 'a' }, { $set: { role: 'aDmIn' } });
    await fixture.ran('a', 3);
    await fixture.quiet(['users']);
    expect(fetched.map((row) => row['name'] as string)).toEqual(['abc', 'ABC', 'ABC']);
    expect(fixture.errors).toEqual([]);
  });

  it('the filter uses the collation of a source that is created after the task was defined', async () => {
    const fixture = new Fixture();
    const fetched: Document[] = [];
    await fixture.started(definition(fetched));
    await fixture.quiet();
    await fixture.db.createCollection('users', { collation });
    await fixture.collection('users').insertOne({ _id: 'a', role: 'ADMIN', name: 'abc' });
    await fixture.ran('a');
    await fixture.settled('users', 'a');
    await fixture.collection('users').updateOne({ _id: 'a' }, { $set: { name: 'ABC' } });
    await fixture.ran('a', 2);
    await fixture.settled('users', 'a');
    expect(fetched).toHaveLength(2);
    expect(await fixture.task('users', 'a')).toMatchObject({ status: 'completed' });
  });
});

describe('a source that is dropped or renamed', () => {
  const known = async (fixture: Fixture, name: string): Promise<number> =>
    fixture.tasks(name).countDocuments({ matched: true });

  it('documents inserted after their collection was dropped run, even with the same values', async () => {
    const fixture = new Fixture();
    const mill = await fixture.started({ collection: 'things' });
    const things = fixture.collection('things');
    await things.insertMany([
      { _id: 1, n: 1 },
      { _id: 2, n: 1 },
    ]);
    await Promise.all([fixture.ran(1), fixture.ran(2)]);
    await fixture.quiet(['things']);
    await things.drop();
    await until('the tasks know', async () => (await known(fixture, 'things')) === 0);
    await things.insertOne({ _id: 1, n: 1 });
    await fixture.ran(1, 2);
    await things.insertOne({ _id: 3, n: 1 });
    await fixture.ran(3);
    await stillPlans(fixture, mill);
  });

  it('documents that arrive by renaming a collection run under its new name', async () => {
    const fixture = new Fixture();
    const mill = await fixture.started({ collection: 'things' });
    void fixture.define(mill, { task: 'other', collection: 'others' });
    await fixture.collection('things').insertOne({ _id: 1 });
    await fixture.ran(1);
    await fixture.quiet(['things']);
    await fixture.collection('things').rename('others');
    await fixture.ran(1, 1, 'other');
    await until('the tasks know', async () => (await known(fixture, 'things')) === 0);
    // Over an existing collection: its documents are gone, and others have come.
    await fixture.collection('fresh').insertOne({ _id: 2 });
    await fixture.client.db().renameCollection('fresh', 'others', { dropTarget: true });
    await fixture.ran(2, 1, 'other');
    await until('the tasks know', async () => (await known(fixture, 'others')) === 1);
    await stillPlans(fixture, mill);
  });

  it('a source is still watched after its whole database was dropped', async () => {
    const fixture = new Fixture();
    const name = `${fixture.db.databaseName}_other`;
    const mill = fixture.mill();
    void fixture.define(mill, { collection: 'things', database: name });
    fixture.mark(mill);
    await mill.start();
    await fixture.ready();
    await fixture.collection('things', name).insertOne({ _id: 1 });
    await fixture.ran(1);
    await fixture.client.db(name).dropDatabase();
    await fixture.collection('things', name).insertOne({ _id: 2 });
    await fixture.ran(2);
    await fixture.collection('things', name).insertOne({ _id: 3 });
    await fixture.ran(3);
    await fixture.client.db(name).dropDatabase();
  });

  /** Checks that no feed was lost on the way. */
  async function stillPlans(fixture: Fixture, mill: Tidemill): Promise<void> {
    await fixture.collection('things').insertOne({ _id: 'last' });
    await fixture.ran('last');
    await fixture.quiet(['things']);
    expect(mill.isHealthy()).toBe(true);
  }
});

describe("a user's transaction on watched documents", () => {
  it('changes in a transaction are planned when it commits, and never if it aborts', async () => {
    const fixture = new Fixture();
    const things = fixture.collection('things');
    await fixture.started({ collection: 'things', watchProjection: { n: 1 } });
    await things.insertOne({ _id: 'there', n: 0 });
    await fixture.ran('there');
    await fixture.settled('things', 'there');
    const session = fixture.client.startSession();
    const write = async (prefix: string): Promise<void> => {
      const documents = Array.from({ length: 50 }, (_, n) => ({ _id: `${prefix}${n}`, n: 0 }));
      await things.insertMany(documents, { session });
      await things.updateMany(
        { _id: { $in: documents.map(({ _id }) => _id) } },
        { $set: { n: 1 } },
        { session },
      );
      await things.updateOne({ _id: 'there' }, { $inc: { n: 1 } as never }, { session });
      await things.deleteOne({ _id: `${prefix}7` }, { session });
    };
    session.startTransaction();
    await write('aborted');
    await fixture.quiet();
    await session.abortTransaction();
    session.startTransaction();
    await write('committed');
    await fixture.quiet();
    expect(await fixture.tasks('things').countDocuments()).toBe(1);
    await session.commitTransaction();
    await session.endSession();
    await fixture.ran('there', 2);
    await fixture.quiet(['things']);
    const ran = fixture.runs.filter(({ id }) => String(id).startsWith('committed'));
    expect(ran).toHaveLength(49);
    expect(ran.every(({ values }) => values['n'] === 1)).toBe(true);
    expect(fixture.runs.filter(({ id }) => String(id).startsWith('aborted'))).toEqual([]);
  });
});

describe('an outcome refused by a validator of the task collection', () => {
  it('sets a refused task outcome aside, records all others, and records it once it is accepted', async () => {
    const fixture = new Fixture();
    const things = fixture.collection('things');
    const validate = async (validator: object): Promise<void> => {
      await fixture.db.command({ collMod: 'things_tasks', validator });
    };
    const mill = await fixture.started({
      collection: 'things',
      handler: async ({ docId }) => {
        // From now on the end of its run cannot be written.
        if (docId === 'poison')
          await validate({
            $or: [
              { sourceDocId: { $ne: 'poison' } },
              { status: { $in: ['processing', 'processing_dirty'] } },
            ],
          });
      },
    });
    await things.insertOne({ _id: 'poison' });
    await until('it is set aside', () => !mill.isHealthy());
    expect(mill.health().reasons).toEqual([
      expect.stringMatching(/^outcomes that the database refuses: 1 \(task /u),
    ]);
    await things.insertMany(Array.from({ length: 10 }, (_, n) => ({ _id: n })));
    for (let n = 0; n < 10; n += 1) await fixture.settled('things', n);
    expect(fixture.errors).toContainEqual(expect.objectContaining({ code: 'OUTCOME_REFUSED' }));
    await validate({});
    await fixture.settled('things', 'poison');
    await until('the instance is well again', () => mill.isHealthy());
    expect(fixture.runs.filter(({ id }) => id === 'poison')).toHaveLength(1);
  });
});
