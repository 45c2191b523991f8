/** The differences that docs/from-mongodb-cron.md lists, and the options that bring the old way back. */
import { describe, expect, it } from 'vitest';
import { gate, until } from '../../support/mills.js';
import { ago, ahead, documentsOf, onBoth, onOurs, useBoth, type Side } from './sides.js';

useBoth();

const newYear = new Date(new Date().getFullYear() + 1, 0, 1);

/** How often an hourly document runs that is three hours late, and whether it is planned for the next hour then. */
const late =
  (options: object) =>
  async ({ collection, cron: make, quiet }: Side): Promise<unknown> => {
    // Not at a full hour, so that no run is due meanwhile.
    await collection.insertMany([
      { n: 1, sleepUntil: ago(3 * 3_600_000), interval: '0 0 1 1 *', repeatUntil: ahead(1) },
      { n: 2, sleepUntil: new Date(newYear.getTime() - 400 * 86_400_000), interval: '0 0 1 1 *' },
    ]);
    const ran: number[] = [];
    const cron = make({ ...options, onDocument: (doc) => ran.push(doc['n'] as number) });
    await cron.start();
    await quiet(cron);
    return { ran: ran.toSorted(), next: (await collection.findOne({ n: 2 }))?.['sleepUntil'] as unknown };
  };

describe('an overdue recurring document', () => {
  it("runs once; twice in mongodb-cron, and with missed: 'seed'", async () => {
    const { theirs, ours } = await onBoth(late({}));
    expect(theirs).toEqual({ ran: [1, 2, 2], next: newYear });
    expect(ours).toEqual({ ran: [1, 2], next: newYear });
    expect(await onOurs(late({ missed: 'seed' }))).toEqual(theirs);
  });
});

/** What is left of the times that handlers write, and of a document that another process rescheduled. */
const rewritten =
  (options: object) =>
  async ({ collection, cron: make, quiet }: Side): Promise<unknown> => {
    await collection.insertMany([
      { n: 1, sleepUntil: ago(5) },
      { n: 2, sleepUntil: ago(5), interval: '0 0 1 1 *' },
    ]);
    const later = new Date('2200-01-01');
    const cron = make({
      ...options,
      onDocument: (doc) => collection.updateOne({ n: doc['n'] as number }, { $set: { sleepUntil: later } }),
    });
    await cron.start();
    await quiet(cron);
    await cron.stop();
    const before = await collection.findOne({ n: 2 });
    await collection.updateOne({ n: 2 }, { $set: { sleepUntil: new Date('2100-01-01') } });
    await cron.reschedule(before!);
    return (await documentsOf(collection)).map((doc) => (doc['sleepUntil'] as Date | null)?.getUTCFullYear());
  };

describe('a time that somebody writes while the document runs', () => {
  it('is kept; overwritten in mongodb-cron, and with fencing: false', async () => {
    const { theirs, ours } = await onBoth(rewritten({}));
    expect(theirs).toEqual([undefined, new Date(newYear.getFullYear() + 1, 0, 1).getUTCFullYear()]);
    expect(ours).toEqual([2200, 2100]);
    expect(await onOurs(rewritten({ fencing: false }))).toEqual(theirs);
  });
});

/** How many handlers run at once if each takes longer than the lock, and what the slower one leaves behind. */
const slow =
  (options: object) =>
  async ({ collection, cron: make }: Side): Promise<unknown> => {
    await collection.insertOne({ sleepUntil: ago(5) });
    const ends = gate();
    let running = 0;
    const config = {
      ...options,
      lockDuration: 300,
      onDocument: () => {
        running += 1;
        return ends.promise;
      },
    };
    const crons = [make(config), make(config)];
    await Promise.all(crons.map((cron) => cron.start()));
    // A renewal moves the lock again and again, another handler only once before it begins.
    const locks = new Set<string>();
    await until('it runs twice, or the lock is renewed', async () => {
      const lock = (await collection.findOne())?.['sleepUntil'] as Date;
      return running > 1 || locks.add(lock.toISOString()).size > 4;
    });
    const most = running;
    ends.open();
    await until('it has ended', async () => (await collection.countDocuments({ sleepUntil: null })) === 1);
    return most;
  };

describe('a handler that takes longer than its lock', () => {
  it('runs alone; not in mongodb-cron, and not with renewLocks: false', async () => {
    const { theirs, ours } = await onBoth(slow({}));
    expect([theirs, ours]).toEqual([2, 1]);
    expect(await onOurs(slow({ renewLocks: false }))).toBe(2);
  });

  it('is recorded without renewals, by the schedule at its end, as long as no other process took the document', async () => {
    const left = await onOurs(async ({ collection, cron: make }) => {
      await collection.insertMany([
        { n: 1, sleepUntil: ago(5) },
        { n: 2, sleepUntil: ago(5), autoRemove: true },
      ]);
      const cron = make({
        renewLocks: false,
        lockDuration: 300,
        onDocument: async ({ _id }) => {
          const isOver = async (): Promise<boolean> =>
            (await collection.countDocuments({ _id: _id as never, sleepUntil: { $lt: new Date() } })) === 1;
          await until('the lock is over', isOver);
          await collection.updateOne({ n: 1 }, { $set: { interval: '0 0 1 1 *' } });
        },
      });
      await cron.start();
      await until('one is gone', async () => (await collection.countDocuments()) === 1);
      await until(
        'the other is planned',
        async () => (await collection.countDocuments({ sleepUntil: newYear })) === 1,
      );
      return documentsOf(collection);
    });
    expect(left).toEqual([{ n: 1, sleepUntil: newYear, interval: '0 0 1 1 *' }]);
  });
});

const VALUES = ['2099-01-01', 4_102_444_800_000, true, { a: 1 }];

const strange =
  (options: object) =>
  async ({ collection, cron: make, quiet }: Side): Promise<{ ran: number; errors: number }> => {
    await collection.insertMany(VALUES.map((sleepUntil, n) => ({ n, sleepUntil })));
    const ran: unknown[] = [];
    const errors: unknown[] = [];
    const cron = make({
      ...options,
      onDocument: (doc) => ran.push(doc['n']),
      onError: (error) => errors.push(error),
    });
    await cron.start();
    await until('each was seen', () => ran.length + errors.length >= VALUES.length);
    await quiet(cron);
    return { ran: new Set(ran).size, errors: errors.length };
  };

describe('a sleepUntil that is no date', () => {
  it.each([0, 20])(
    'is reported once; it runs in mongodb-cron, and with runNonDates (idleDelay %i)',
    async (idleDelay) => {
      const { theirs, ours } = await onBoth(strange({ idleDelay }));
      expect(theirs).toEqual({ ran: VALUES.length, errors: 0 });
      expect(ours).toEqual({ ran: 0, errors: VALUES.length });
      expect(await onOurs(strange({ idleDelay, runNonDates: true }))).toEqual(theirs);
    },
  );
});

describe('an interval that cannot be read', () => {
  const wrong =
    (options: object) =>
    async ({ collection, cron: make, quiet }: Side): Promise<unknown> => {
      await collection.insertOne({ sleepUntil: ago(5), interval: 'each day', autoRemove: true });
      const errors: string[] = [];
      const cron = make({ ...options, onError: (error) => errors.push(error.message) });
      await cron.start();
      await until(
        'it has run',
        async () => (await collection.countDocuments({ sleepUntil: { $ne: null } })) === 0,
      );
      await quiet(cron);
      return { errors: errors.length, left: await documentsOf(collection) };
    };

  it('parks the document with the reason; mongodb-cron deletes it', async () => {
    const { theirs, ours } = await onBoth(wrong({}));
    const parked = { sleepUntil: null, interval: 'each day', autoRemove: true };
    expect(theirs).toEqual({ errors: 0, left: [] });
    expect(ours).toEqual({
      errors: 1,
      left: [{ ...parked, scheduleFailure: expect.objectContaining({ ended: true }) as object }],
    });
    expect(await onOurs(wrong({ failureFieldPath: null }))).toEqual({ errors: 1, left: [parked] });
  });
});

describe('a run that is planned anew while it runs', () => {
  it('follows the interval that the document has at its end; mongodb-cron follows the old one', async () => {
    const { theirs, ours } = await onBoth(async ({ collection, cron: make, quiet }) => {
      await collection.insertOne({ sleepUntil: ago(5) });
      const cron = make({
        onDocument: (doc) =>
          collection.updateOne({ _id: doc['_id'] as never }, { $set: { interval: '0 0 1 1 *' } }),
      });
      await cron.start();
      await quiet(cron);
      return (await collection.findOne())?.['sleepUntil'] as unknown;
    });
    expect([theirs, ours]).toEqual([null, newYear]);
  });
});

describe('options of ours', () => {
  it('an interval is read in the zone of the option, of the document if it has a place for one', async () => {
    const times = await onOurs(async ({ collection, cron: make, quiet }) => {
      await collection.insertMany([
        { n: 1, sleepUntil: ago(5), interval: '0 0 1 1 *', timezone: 'UTC' },
        { n: 2, sleepUntil: ago(5), interval: '0 0 1 1 *' },
      ]);
      const cron = make({ timezone: 'Asia/Tokyo', timezoneFieldPath: 'timezone' });
      await cron.start();
      await quiet(cron);
      return (await documentsOf(collection)).map(({ sleepUntil }) => (sleepUntil as Date).getUTCHours());
    });
    expect(times).toEqual([0, 15]);
  });

  it('creates nothing in the database of the collection', async () => {
    const names = await onOurs(async ({ collection, cron: make, quiet }) => {
      const cron = make();
      await cron.start();
      await quiet(cron);
      const all = await collection.db.listCollections({}, { nameOnly: true }).toArray();
      return all.map(({ name }) => name).filter((name) => name.includes('tidemill'));
    });
    expect(names).toEqual([]);
  });

  it('logs what onError throws when a start inside a hook fails', async () => {
    await onOurs(async ({ cron: make }) => {
      const logged: string[] = [];
      const log = (_fields: object, message: string): void => void logged.push(message);
      let starts = 0;
      const cron = make({
        logger: { debug: log, info: log, warn: log, error: log },
        onStart: () => {
          if ((starts += 1) > 1) throw new Error('no second start');
        },
        onStop: (stopped) => void stopped.start(),
        onError: (error) => {
          throw new Error(`told: ${error.message}`);
        },
      });
      await cron.start();
      await cron.stop();
      await until('it is logged', () => logged.includes('onError: told: no second start'));
    });
  });

  it('onError is told of a handler that throws something other than an Error, and of onStop', async () => {
    const errors = await onOurs(async ({ collection, cron: make, quiet }) => {
      const told: string[] = [];
      await collection.insertOne({ sleepUntil: ago(5) });
      const cron = make({
        onDocument: () => {
          // eslint-disable-next-line @typescript-eslint/only-throw-error -- what is tested
          throw 'a text';
        },
        onStop: () => {
          throw new Error('of onStop');
        },
        onError: (error) => told.push(error.message),
      });
      await cron.start();
      await until('it was told', () => told.length === 1);
      await quiet(cron);
      await cron.stop();
      return told;
    });
    expect(errors).toEqual(['a text', 'of onStop']);
  });
});
