/** The same calls and inserts on mongodb-cron 1.9.0 and on `tidemill/compat/mongodb-cron`. */
import { describe, expect, it } from 'vitest';
import { gate, until } from '../../support/mills.js';
import { ago, ahead, documentsOf, onBoth, useBoth, type Side } from './sides.js';

useBoth();

/** Expects the script to come to this on both. */
async function agree<T>(script: (side: Side) => Promise<T>, result: T): Promise<void> {
  const { theirs, ours } = await onBoth(script);
  expect(theirs).toEqual(result);
  expect(ours).toEqual(result);
}

describe('which documents run, beside mongodb-cron', () => {
  it.each([0, 60_000])('runs what is due, once, with a lock of %i ms', async (lockDuration) => {
    await agree(
      async ({ collection, cron: make, quiet }) => {
        await collection.insertMany([
          { n: 1, sleepUntil: ago(5_000) },
          { n: 2, sleepUntil: ago(0), autoRemove: true },
          { n: 3, sleepUntil: ago(10), autoRemove: 1 },
          { n: 4, sleepUntil: null },
          { n: 5 },
          { n: 6, interval: '* * * * *' },
          { n: 7, sleepUntil: new Date('2200-01-01') },
          { n: 8, sleepUntil: ago(10), interval: '0 0 1 1 *', repeatUntil: ago(5) },
          { n: 9, sleepUntil: ago(10), interval: '0 0 1 1 *', repeatUntil: ago(5), autoRemove: true },
        ]);
        const ran: number[] = [];
        const cron = make({ lockDuration, onDocument: (doc) => ran.push(doc['n'] as number) });
        await cron.start();
        await quiet(cron);
        return { ran: ran.toSorted(), left: await documentsOf(collection) };
      },
      {
        ran: [1, 2, 3, 8, 9],
        left: [
          { n: 1, sleepUntil: null },
          { n: 4, sleepUntil: null },
          { n: 5 },
          { n: 6, interval: '* * * * *' },
          { n: 7, sleepUntil: new Date('2200-01-01') },
          { n: 8, sleepUntil: null, interval: '0 0 1 1 *', repeatUntil: expect.any(Date) as Date },
        ],
      },
    );
  });

  it('runs only documents that match the condition, and takes none for no condition', async () => {
    await agree(
      async ({ collection, cron: make, quiet }) => {
        await collection.insertMany([1, 2, 3].map((n) => ({ n, kind: n % 2, sleepUntil: ago(5) })));
        const ran: number[] = [];
        const onDocument = (doc: { n?: number }): number => ran.push(doc.n!);
        const odd = make({ condition: { kind: 1 }, onDocument });
        await odd.start();
        await until('two have run', () => ran.length === 2);
        const some = ran.toSorted();
        const all = make({ condition: null, onDocument });
        await all.start();
        await quiet(all);
        return { some, all: ran.toSorted() };
      },
      { some: [1, 3], all: [1, 2, 3] },
    );
  });

  it('finds the schedule at dot paths, and keeps what is beside it', async () => {
    const repeatUntil = new Date('2200-01-01');
    await agree(
      async ({ collection, cron: make }) => {
        await collection.insertMany([
          { n: 1, cron: { at: ago(5), every: '0 0 1 1 *', until: repeatUntil, other: 1 } },
          { n: 2, cron: { at: ago(5), gone: true } },
        ]);
        const cron = make({
          sleepUntilFieldPath: 'cron.at',
          intervalFieldPath: 'cron.every',
          repeatUntilFieldPath: 'cron.until',
          autoRemoveFieldPath: 'cron.gone',
        });
        await cron.start();
        await until('all have run', async () => {
          const due = await collection.countDocuments({ 'cron.at': { $lte: ahead(700_000) } });
          return due === 0;
        });
        return documentsOf(collection);
      },
      [
        {
          n: 1,
          cron: {
            at: new Date(new Date().getFullYear() + 1, 0, 1),
            every: '0 0 1 1 *',
            until: repeatUntil,
            other: 1,
          },
        },
      ],
    );
  });

  it('asks a function for the collection', async () => {
    await agree(
      async ({ collection, cron: make, quiet }) => {
        await collection.insertOne({ sleepUntil: ago(5) });
        const cron = make({ ...({ collection: () => collection } as object) });
        await cron.start();
        await quiet(cron);
        return documentsOf(collection);
      },
      [{ sleepUntil: null }],
    );
  });
});

describe('the next run, beside mongodb-cron', () => {
  const INTERVALS = [
    '0 0 1 1 *',
    '0 12 24 12 *',
    '30 10 5 * * *',
    '@yearly',
    '0 4 29 2 *',
    '1 1',
    '*',
    '7',
    '0 0 L * *',
  ];

  it.each([0, 40 * 86_400_000])(
    'is planned from the due time, with a reprocessDelay of %i ms',
    async (reprocessDelay) => {
      const { theirs, ours } = await onBoth(async ({ collection, cron: make, quiet }) => {
        // In the present year, so that nothing is overdue.
        const sleepUntil = ago(1);
        await collection.insertMany(INTERVALS.map((interval, n) => ({ n, sleepUntil, interval })));
        const cron = make({ reprocessDelay });
        await cron.start();
        await quiet(cron);
        const minute = (at: Date): number => Math.floor(at.getTime() / 60_000);
        return (await documentsOf(collection)).map(({ interval, sleepUntil: at }) => [
          interval as string,
          minute(at as Date),
        ]);
      });
      // `*` and `7` fall due again and again meanwhile.
      const near = ([, at]: (string | number)[], index: number): void =>
        expect(Math.abs((at as number) - (theirs[index]![1] as number))).toBeLessThanOrEqual(2);
      ours.forEach(near);
    },
  );

  it('ends at repeatUntil', async () => {
    await agree(
      async ({ collection, cron: make }) => {
        const second = Math.ceil(Date.now() / 1_000) * 1_000 + 1_000;
        await collection.insertOne({
          sleepUntil: new Date(second),
          interval: '* * * * * *',
          repeatUntil: new Date(second + 1_000),
          autoRemove: true,
        });
        const times: number[] = [];
        const cron = make({
          onDocument: (doc) => times.push((doc['sleepUntil'] as Date).getTime() - second),
        });
        await cron.start();
        await until('it is gone', async () => (await collection.countDocuments()) === 0);
        return times;
      },
      [0, 1_000],
    );
  });
});

describe('hooks and states, beside mongodb-cron', () => {
  it('come in order, once per idle spell, with the cron as this and as the last argument', async () => {
    await agree(
      async ({ collection, cron: make, quiet }) => {
        const told: unknown[] = [];
        await collection.insertOne({ n: 1, sleepUntil: ago(5) });
        const cron = make({
          onStart(given) {
            told.push(['start', this === given, this.isRunning(), this.isProcessing(), this.isIdle()]);
          },
          onDocument(doc, given) {
            told.push([doc['n'], this === given, this.isRunning(), this.isProcessing(), this.isIdle()]);
          },
          onIdle(given) {
            told.push(['idle', this === given, this.isRunning(), this.isProcessing(), this.isIdle()]);
          },
          onStop(given) {
            told.push(['stop', this === given, this.isRunning(), this.isProcessing()]);
          },
        });
        told.push([cron.isRunning(), cron.isProcessing(), cron.isIdle()]);
        await cron.start();
        await cron.start();
        await quiet(cron);
        await collection.insertOne({ n: 2, sleepUntil: ago(5) });
        await until('it has run', () => told.some((line) => Array.isArray(line) && line[0] === 2));
        await quiet(cron);
        await cron.stop();
        // mongodb-cron may resolve before it has called onStop.
        await until('it has stopped', () => told.length === 7);
        return told;
      },
      [
        [false, false, false],
        ['start', true, true, false, false],
        [1, true, true, true, false],
        ['idle', true, true, false, true],
        [2, true, true, true, false],
        ['idle', true, true, false, true],
        ['stop', true, false, false],
      ],
    );
  });

  it('an idle spell goes on through a restart', async () => {
    await agree(async ({ cron: make, quiet }) => {
      let idle = 0;
      let stops = 0;
      const cron = make({ onIdle: () => (idle += 1), onStop: () => (stops += 1) });
      await cron.start();
      await quiet(cron);
      await cron.stop();
      await until('it has stopped', () => stops === 1);
      await cron.start();
      await quiet(cron);
      return idle;
    }, 1);
  });

  it('stop() inside onDocument resolves, and the document is recorded', async () => {
    await agree(
      async ({ collection, cron: make }) => {
        await collection.insertMany([1, 2].map((n) => ({ n, sleepUntil: ago(5) })));
        const told: string[] = [];
        const cron = make({
          onDocument: async (_doc, running) => {
            await running.stop();
            told.push('stopped inside');
          },
          onStop: () => told.push('stop'),
        });
        await cron.start();
        await until('it has stopped', () => told.includes('stop'));
        const parked = await collection.countDocuments({ sleepUntil: null });
        return { told, parked, running: cron.isRunning() };
      },
      { told: ['stopped inside', 'stop'], parked: 1, running: false },
    );
  });

  it('stop() inside onIdle resolves when onStop has, so that the process may end', async () => {
    await agree(
      async ({ collection, cron: make }) => {
        await collection.insertOne({ sleepUntil: ago(5) });
        const told: string[] = [];
        const ended = gate();
        const cron = make({
          onDocument: () => told.push('document'),
          onIdle: async (running) => {
            await running.stop();
            told.push('idle');
            ended.open();
          },
          onStop: () => told.push('stop'),
        });
        await cron.start();
        await ended.promise;
        return told;
      },
      ['document', 'stop', 'idle'],
    );
  });

  it('a cron starts again after a stop', async () => {
    await agree(
      async ({ collection, cron: make, quiet }) => {
        const told: string[] = [];
        const cron = make({ onStart: () => told.push('start'), onStop: () => told.push('stop') });
        await cron.start();
        await cron.stop();
        await until('it has stopped', () => told.length === 2);
        await collection.insertOne({ sleepUntil: ago(5) });
        await cron.start();
        await quiet(cron);
        await cron.stop();
        await until('it has stopped again', () => told.length === 4);
        return told;
      },
      ['start', 'stop', 'start', 'stop'],
    );
  });
});

describe('what handlers may do, beside mongodb-cron', () => {
  it('a document whose handler throws reaches onError, and runs again when its lock ends', async () => {
    await agree(
      async ({ collection, cron: make, quiet }) => {
        await collection.insertOne({ sleepUntil: ago(5) });
        const due: number[] = [];
        const errors: unknown[] = [];
        const cron = make({
          lockDuration: 700,
          onDocument: (doc) => {
            due.push((doc['sleepUntil'] as Date).getTime());
            if (due.length < 3) throw new Error(`no. ${String(due.length)}`);
          },
          onError(error, given) {
            errors.push([error.message, this === given]);
          },
        });
        await cron.start();
        await until('three tries', () => due.length === 3);
        await quiet(cron);
        // Each retry is due at the end of the lock before it.
        const waits = due.slice(1).map((at, index) => at - due[index]!);
        return { errors, waits: waits.every((ms) => ms >= 690 && ms < 5_000) };
      },
      {
        errors: [
          ['no. 1', true],
          ['no. 2', true],
        ],
        waits: true,
      },
    );
  });

  it('a handler that reschedules its document and throws does not wait for the end of the lock', async () => {
    const next = new Date(new Date().getFullYear() + 1, 0, 1);
    await agree(
      async ({ collection, cron: make, quiet }) => {
        await collection.insertMany([
          { n: 1, sleepUntil: ago(5), interval: '0 0 1 1 *' },
          { n: 2, sleepUntil: ago(5) },
          { n: 3, sleepUntil: ago(5), autoRemove: true },
        ]);
        const errors: string[] = [];
        const cron = make({
          onDocument: async (doc, running) => {
            await running.reschedule(doc);
            throw new Error('after');
          },
          onError: (error) => errors.push(error.message),
        });
        await cron.start();
        await until('all have run', () => errors.length === 3);
        await quiet(cron);
        return { errors, left: await documentsOf(collection) };
      },
      {
        errors: ['after', 'after', 'after'],
        left: [
          { n: 1, sleepUntil: next, interval: '0 0 1 1 *' },
          { n: 2, sleepUntil: null },
        ],
      },
    );
  });

  it('reschedule plans a document that was read from the collection', async () => {
    const next = new Date(new Date().getFullYear() + 1, 0, 1);
    await agree(
      async ({ collection, cron: make }) => {
        await collection.insertOne({ sleepUntil: ago(5), interval: '0 0 1 1 *' });
        const cron = make();
        await cron.reschedule((await collection.findOne())!);
        return documentsOf(collection);
      },
      [{ sleepUntil: next, interval: '0 0 1 1 *' }],
    );
  });

  it('a document that its handler deletes is gone, without an error', async () => {
    await agree(
      async ({ collection, cron: make, quiet }) => {
        await collection.insertOne({ sleepUntil: ago(5), interval: '* * * * *' });
        const errors: unknown[] = [];
        const cron = make({
          onDocument: (doc) => collection.deleteOne({ _id: doc['_id'] as never }),
          onError: (error) => errors.push(error),
        });
        await cron.start();
        await until('it is gone', async () => (await collection.countDocuments()) === 0);
        await quiet(cron);
        return { errors, left: await collection.countDocuments() };
      },
      { errors: [], left: 0 },
    );
  });

  it('two crons on one collection share its documents', async () => {
    await agree(
      async ({ collection, cron: make, quiet }) => {
        await collection.insertMany(Array.from({ length: 40 }, (_, n) => ({ n, sleepUntil: ago(5) })));
        const ran: number[] = [];
        const crons = [1, 2].map(() => make({ onDocument: (doc) => ran.push(doc['n'] as number) }));
        await Promise.all(crons.map((cron) => cron.start()));
        await Promise.all(crons.map(quiet));
        return { count: ran.length, different: new Set(ran).size };
      },
      { count: 40, different: 40 },
    );
  });
});
