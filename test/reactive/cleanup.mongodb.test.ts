import { describe, expect, it } from 'vitest';
import { Tidemill, type ReactiveTaskDefinition } from '../../src/index.js';
import { memory } from '../../src/memory/index.js';
import { gate, until } from '../support/mills.js';
import { statusesOf, withBeacon } from './beacons.js';
import { workshop, type Row, type Workshop } from './workshop.js';

const AT_ONCE = { collection: 'things', debounce: 0 } as const;
const HOUR_MS = 3_600_000;
type Policy = NonNullable<ReactiveTaskDefinition['cleanupPolicy']>;

/** Waits until one more cleanup of the task has begun and ended. */
async function cleanedAgain({ db }: Workshop, task: string): Promise<void> {
  const globals = db.collection<Row>('_tidemill_globals');
  const last = async (): Promise<number> => {
    const row = await globals.findOne({ _id: `task:${task}` });
    return ((row?.['state'] as { lastCleanedAt?: Date } | undefined)?.lastCleanedAt ?? new Date(0)).getTime();
  };
  for (let round = 0; round < 2; round += 1) {
    const before = await last();
    await until('a cleanup has ended', async () => (await last()) > before);
  }
}

/** A task as it is stored, of a document that never was. */
function orphan(task: string, id: number, fields: Record<string, unknown> = {}): Row {
  const old = new Date(Date.now() - 2 * HOUR_MS);
  return {
    _id: { task, id } as never,
    ...{ v: 1, task, sourceDocId: id, status: 'completed', attempts: 1, matched: true, lockedAt: null },
    ...{ scheduledAt: old, initialScheduledAt: old, createdAt: old, updatedAt: old, lastFinalizedAt: old },
    lastObservedValues: { _id: id },
    ...fields,
  };
}

describe('deleteWhen, with keepFor 0', () => {
  const deleted = async ({ docs }: Workshop): Promise<unknown> => docs.deleteOne({ _id: 1 });
  const left = async ({ docs }: Workshop): Promise<unknown> =>
    docs.updateOne({ _id: 1 }, { $set: { status: 'off' } });

  it.each([
    ['sourceDocumentDeleted', 'deleted', deleted, false],
    ['sourceDocumentDeleted', 'out of the filter', left, true],
    ['sourceDocumentDeletedOrNoLongerMatching', 'deleted', deleted, false],
    ['sourceDocumentDeletedOrNoLongerMatching', 'out of the filter', left, false],
    ['never', 'deleted', deleted, true],
    ['never', 'out of the filter', left, true],
  ] as const)(
    '%s: the task of a document that is %s goes as soon as that is planned, or stays',
    async (...given) => {
      const [deleteWhen, , change, stays] = given;
      const shop = workshop();
      const mill = shop.mill();
      let runs = 0;
      await mill.reactiveTask({
        ...AT_ONCE,
        task: 't',
        filter: { status: 'on' },
        cleanupPolicy: { deleteWhen, keepFor: 0 },
        handler: () => (runs += 1),
      });
      await withBeacon(mill);
      await mill.start();
      await shop.docs.insertOne({ _id: 1, status: 'on' });
      await shop.reaches(mill, 't', 1, 'completed');
      await change(shop);
      await shop.planned();
      const kept = await shop.raw('t', 1);
      if (stays) expect(kept).toMatchObject({ status: 'completed' });
      else expect(kept).toBeNull();
      // Whatever became of the task, the document that comes back as it was runs again.
      await shop.docs.replaceOne({ _id: 1 }, { status: 'on' }, { upsert: true });
      await until('it ran again', () => runs === 2);
      const back = await shop.reaches(mill, 't', 1, 'completed');
      expect(statusesOf(back)).toEqual(stays ? ['completed', 'completed'] : ['completed']);
    },
  );
});

describe('keepFor', () => {
  it('counts from the later of updatedAt and lastFinalizedAt', async () => {
    const shop = workshop();
    const mill = shop.mill({ reactive: { cleanupInterval: 200 } });
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      cleanupPolicy: { keepFor: '1h' },
      handler: () => undefined,
    });
    await mill.start();
    const recent = new Date(Date.now() - HOUR_MS / 2);
    const future = new Date(Date.now() + HOUR_MS);
    await shop.docs.insertOne({ _id: 9 });
    await shop.reaches(mill, 't', 9, 'completed');
    await shop.stored.updateOne(
      { sourceDocId: 9 },
      { $set: { updatedAt: new Date(0), lastFinalizedAt: new Date(0) } },
    );
    await shop.stored.insertMany([
      orphan('t', 1),
      orphan('t', 2, { updatedAt: recent }),
      orphan('t', 3, { lastFinalizedAt: recent }),
      orphan('t', 4, { status: 'failed' }),
      orphan('t', 5, { status: 'pending', scheduledAt: future, lastFinalizedAt: null }),
      orphan('t', 6, { status: 'pending', scheduledAt: future, updatedAt: recent, lastFinalizedAt: null }),
      orphan('other', 7),
    ]);
    await cleanedAgain(shop, 't');
    const left = await shop.stored.distinct('sourceDocId');
    expect(left).toEqual([2, 3, 6, 7, 9]);
  });

  it('is a day by default', async () => {
    const shop = workshop();
    const mill = shop.mill({ reactive: { cleanupInterval: 200 } });
    await mill.reactiveTask({ ...AT_ONCE, task: 't', handler: () => undefined });
    await mill.start();
    const ago = (hours: number): Record<string, Date> => {
      const at = new Date(Date.now() - hours * HOUR_MS);
      return { updatedAt: at, lastFinalizedAt: at };
    };
    await shop.stored.insertMany([orphan('t', 1, ago(23)), orphan('t', 2, ago(25))]);
    await cleanedAgain(shop, 't');
    expect(await shop.stored.distinct('sourceDocId')).toEqual([1]);
  });

  it('lets a document that disappears and returns keep its task and history, and runs it again', async () => {
    const shop = workshop();
    const mill = shop.mill({ reactive: { cleanupInterval: 200 } });
    let runs = 0;
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      cleanupPolicy: { keepFor: '1h' },
      handler: () => (runs += 1),
    });
    await withBeacon(mill);
    await mill.start();
    await shop.docs.insertOne({ _id: 1, n: 1 });
    const first = await shop.reaches(mill, 't', 1, 'completed');
    await shop.docs.deleteOne({ _id: 1 });
    await shop.planned();
    await cleanedAgain(shop, 't');
    expect(await shop.raw('t', 1)).toMatchObject({ status: 'completed', matched: false });
    await shop.docs.insertOne({ _id: 1, n: 1 });
    await until('it ran again', () => runs === 2);
    const second = await shop.reaches(mill, 't', 1, 'completed');
    expect(second.createdAt).toEqual(first.createdAt);
    expect(statusesOf(second)).toEqual(['completed', 'completed']);
    // It is there: however old its task is, it stays.
    await shop.stored.updateOne(
      { sourceDocId: 1 },
      { $set: { updatedAt: new Date(0), lastFinalizedAt: new Date(0) } },
    );
    await cleanedAgain(shop, 't');
    expect(await shop.raw('t', 1)).not.toBeNull();
  });

  it('does not delete a task that runs; it goes when it has ended', async () => {
    const shop = workshop();
    const mill = shop.mill({ reactive: { cleanupInterval: 200 } });
    const [started, go] = [gate(), gate()];
    let ended = false;
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      cleanupPolicy: { keepFor: 0 },
      handler: async () => {
        started.open();
        await go.promise;
        ended = true;
      },
    });
    await withBeacon(mill);
    await mill.start();
    await shop.docs.insertOne({ _id: 1 });
    await started.promise;
    await shop.docs.deleteOne({ _id: 1 });
    await shop.planned();
    await cleanedAgain(shop, 't');
    expect(await shop.raw('t', 1)).toMatchObject({ status: 'processing' });
    go.open();
    await until('it is gone', async () => (await shop.raw('t', 1)) === null);
    expect(ended).toBe(true);
  });

  it('deletes what left a filter by the passing of time alone', async () => {
    const shop = workshop();
    const mill = shop.mill({ reactive: { cleanupInterval: 200 } });
    let runs = 0;
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      filter: { $expr: { $gt: ['$until', '$$NOW'] } },
      cleanupPolicy: { deleteWhen: 'sourceDocumentDeletedOrNoLongerMatching', keepFor: 100 },
      handler: () => (runs += 1),
    });
    await mill.start();
    await shop.docs.insertMany([
      // Long enough to be planned and run before it is over.
      { _id: 1, until: new Date(Date.now() + 6_000) },
      { _id: 2, until: new Date(Date.now() + HOUR_MS) },
    ]);
    await shop.reaches(mill, 't', 1, 'completed');
    await shop.reaches(mill, 't', 2, 'completed');
    await until('its time is over', async () => (await shop.raw('t', 1)) === null);
    expect(await shop.raw('t', 2)).not.toBeNull();
    expect(runs).toBe(2);
  });

  it.each<readonly [Policy, RegExp]>([
    [{ deleteWhen: 'always' as never }, /deleteWhen/u],
    [{ keepFor: -1 }, /keepFor/u],
    [{ keepFor: 'soon' }, /keepFor/u],
    [{ keep: 1 } as never, /keep/u],
  ])('refuses the policy %o', (cleanupPolicy, message) => {
    const mill = workshop().mill();
    const define = (): unknown =>
      mill.reactiveTask({ ...AT_ONCE, task: 't', cleanupPolicy, handler: () => undefined });
    expect(define).toThrow(message);
  });
});

describe('cleanupInterval', () => {
  it.each([
    ['a duration', '300ms'],
    ['milliseconds', 300],
    ['cron', 'CRON * * * * * *'],
  ])('is kept to: %s', async (_what, cleanupInterval) => {
    const shop = workshop();
    const mill = shop.mill({ reactive: { cleanupInterval } });
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      cleanupPolicy: { keepFor: '1h' },
      handler: () => undefined,
    });
    await mill.start();
    for (const id of [1, 2, 3]) {
      await shop.stored.insertOne(orphan('t', id));
      await until('it is cleaned up', async () => (await shop.raw('t', id)) === null);
    }
  });

  it('is a day by default, from the first registration on: until then nothing is deleted', async () => {
    const shop = workshop();
    const mill = shop.mill();
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      cleanupPolicy: { keepFor: '1h' },
      handler: () => undefined,
    });
    await withBeacon(mill);
    await mill.start();
    await shop.stored.insertOne(orphan('t', 2));
    await shop.docs.insertOne({ _id: 9 });
    await shop.reaches(mill, 't', 9, 'completed');
    await shop.planned();
    await mill.tasks.reconcile('t');
    await until('it was looked at', async () => (await shop.raw('t', 2))?.['matched'] === false);
    expect(await shop.raw('t', 2)).not.toBeNull();
  });

  it('deletes in batches, and nothing else', async () => {
    const shop = workshop();
    const mill = shop.mill({ reactive: { cleanupInterval: 200 } });
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      cleanupPolicy: { keepFor: '1h' },
      handler: () => undefined,
    });
    const ids = Array.from({ length: 2_500 }, (_, id) => id);
    await shop.stored.insertMany(ids.map((id) => orphan('t', id)));
    await shop.docs.insertMany(ids.filter((id) => id % 10 === 0).map((_id) => ({ _id })));
    await mill.start();
    await until('all orphans are gone', async () => (await shop.stored.countDocuments()) === 250);
    await cleanedAgain(shop, 't');
    expect(await shop.stored.countDocuments()).toBe(250);
  });

  it.each(['CRON nonsense', 'CRON', 0, -1, 'soon', Number.NaN])('refuses %s', (cleanupInterval) => {
    expect(() => new Tidemill({ store: memory(), reactive: { cleanupInterval } })).toThrow(
      /cleanupInterval/u,
    );
  });
});
