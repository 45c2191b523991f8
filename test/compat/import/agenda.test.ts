import { Binary, Double, Long, ObjectId, type MongoClient } from 'mongodb';
import { describe, expect, inject, it } from 'vitest';
import { mongodb } from '../../../src/mongodb/index.js';
import { aMill, until } from '../../support/mills.js';
import { freshUri, rawClient } from '../../support/stores.js';
import { defineShop, placeOrders } from '../apps/agenda.js';
import { AT_ONCE, bringForward, onTidemill, ORDERS, OUTCOME, Shop } from '../apps/orders.js';
import { reasonsOf, runImport, type Place } from './imports.js';
import { newAgenda, newPulse, type Scheduler } from './originals.js';

const HOUR = 3_600_000;
const client = rawClient(inject('mongoUri'));

const placeOf = (uri: string): Place => ({ from: uri, store: ['--store', uri] });
const databaseOf = (uri: string): string => new URL(uri).pathname.slice(1);

const collectionOf = (uri: string, name: string, of: MongoClient = client) =>
  of.db(databaseOf(uri)).collection(name);

/** Hands back what it has locked, then closes. */
async function close(library: Scheduler): Promise<void> {
  await library.stop();
  await library.close?.();
}

const LIBRARIES = [
  { library: 'agenda', title: 'Agenda', collection: 'agendaJobs', open: newAgenda },
  { library: 'pulse', title: 'Pulse', collection: 'pulseJobs', open: newPulse },
] as const;

describe.each(LIBRARIES)('tidemill import $library', ({ library, collection, open }) => {
  it('an application comes to the same on the original alone', async () => {
    const shop = new Shop();
    const old = await open(freshUri());
    defineShop(old, shop);
    await placeOrders(old, 0);
    await old.start();
    await until(
      'all were tried',
      () => shop.charged.length === ORDERS.length - 1 && shop.refused.length === 1,
    );
    shop.declined.clear();
    await old.now('charge', { order: 'order-3' });
    await until(
      'all is done',
      () => shop.charged.length === ORDERS.length && shop.mailed.length === ORDERS.length,
    );
    await close(old);
    expect(shop.outcome).toEqual(OUTCOME);
  });

  it('takes over an application in the middle of its work', async () => {
    const uri = freshUri();
    const shop = new Shop();
    const old = await open(uri);
    defineShop(old, shop);
    await placeOrders(old);
    await old.start();
    const jobs = collectionOf(uri, collection);
    await until(
      'the first orders were tried',
      async () =>
        (await jobs.countDocuments({ lastFinishedAt: { $type: 'date' }, lockedAt: null })) === AT_ONCE.length,
    );
    await close(old);
    expect([...shop.charged].sort()).toEqual(['order-1', 'order-2']);

    const { report } = await runImport(library, placeOf(uri));
    expect(report.jobs).toEqual({ created: ORDERS.length + 2, failed: 1, here: 0 });
    expect(report.schedules).toEqual({ created: 1, here: 0 });
    expect(report.left).toEqual([]);

    const mill = aMill(mongodb({ uri }));
    onTidemill(mill, shop);
    await mill.start();
    const [failed] = (await mill.jobs.find({ status: 'failed' })).items;
    expect(failed).toMatchObject({
      name: 'charge',
      data: { order: 'order-3' },
      error: 'the card for order-3 was declined',
    });
    shop.declined.clear();
    await mill.jobs.retry(failed!.id);
    await bringForward(mill);
    await until(
      'all is done',
      () => shop.charged.length === ORDERS.length && shop.mailed.length === ORDERS.length,
    );
    expect(shop.outcome).toEqual(OUTCOME);
    expect(await mill.schedules.get('report')).toMatchObject({
      cron: '0 3 * * *',
      timezone: 'Europe/Berlin',
      data: { region: 'north' },
    });
    await mill.schedules.runNow('report');
    await until('the report ran', () => shop.reports.length === 1);
    expect(shop.reports).toEqual(['north']);
  });

  it('writes nothing in a dry run, and nothing twice in two runs', async () => {
    const uri = freshUri();
    const old = await open(uri);
    defineShop(old, new Shop());
    await placeOrders(old);
    await close(old);
    const place = placeOf(uri);
    const dry = await runImport(library, place, ['--dry-run']);
    expect(dry.report.jobs).toEqual({ created: 10, failed: 0, here: 0 });
    const names = (await client.db(databaseOf(uri)).listCollections().toArray()).map(({ name }) => name);
    expect(names.filter((name) => name.includes('tidemill'))).toEqual([]);
    await runImport(library, place);
    const again = await runImport(library, place);
    expect(again.report.jobs).toEqual({ created: 0, failed: 0, here: 10 });
    expect(again.report.schedules).toEqual({ created: 0, here: 1 });
    expect(await collectionOf(uri, collection).countDocuments()).toBe(11);
    expect(await collectionOf(uri, 'tidemill_jobs').countDocuments()).toBe(11);
  });

  it('keeps priorities, and the zones, distances and pauses of recurring jobs', async () => {
    const uri = freshUri();
    const old = await open(uri);
    old.define('mail', async () => undefined);
    await old
      .create('mail', { to: 'ada' })
      .priority('highest')
      .schedule(new Date(Date.now() + HOUR))
      .save();
    await old
      .create('mail', { to: 'bob' })
      .priority(-7)
      .schedule(new Date(Date.now() + HOUR))
      .save();
    await old.every('2 hours and 30 minutes', 'sweep', { deep: true });
    await old.every(90_000, 'tick');
    await old.every('*/5 8-18 * * 1-5', 'poll', {}, { timezone: 'America/New_York' });
    await old.create('off', {}).repeatEvery('0 0 1 * *').disable().save();
    await close(old);
    const { report } = await runImport(library, placeOf(uri), ['--timezone', 'Europe/Rome']);
    expect(report.left).toEqual([]);
    const mill = aMill(mongodb({ uri }));
    const mails = (await mill.jobs.find({ name: 'mail' })).items;
    expect(
      Object.fromEntries(mails.map(({ data, priority }) => [(data as { to: string }).to, priority])),
    ).toEqual({ ada: 10, bob: -4 });
    const schedules = await mill.schedules.list();
    expect(schedules.map(({ name, cron, timezone, paused }) => [name, cron, timezone, paused])).toEqual([
      ['off', '0 0 1 * *', 'Europe/Rome', true],
      ['poll', '*/5 8-18 * * 1-5', 'America/New_York', false],
      ['sweep', '@every 9000000ms', 'Europe/Rome', false],
      ['tick', '@every 90000ms', 'Europe/Rome', false],
    ]);
    // Both libraries run an interval at once when it is new; that run is due here, too.
    expect(
      (await mill.jobs.find({ name: ['sweep', 'tick'], status: 'pending' })).items.filter(
        ({ repeatInterval }) => repeatInterval === undefined,
      ),
    ).toHaveLength(2);
  });

  it('removes with --move what is stored, and leaves what has changed or runs there', async () => {
    const uri = freshUri();
    const old = await open(uri);
    old.define('mail', async () => undefined);
    for (const to of ['ada', 'bob', 'eve']) await old.schedule(new Date(Date.now() + HOUR), 'mail', { to });
    await old.every('0 3 * * *', 'report', {}, { skipImmediate: true });
    await close(old);
    const jobs = collectionOf(uri, collection);
    await jobs.updateOne({ 'data.to': 'eve' }, { $set: { lockedAt: new Date() } });
    const { report } = await runImport(library, placeOf(uri), ['--move']);
    expect(report).toMatchObject({ jobs: { created: 2 }, schedules: { created: 1 }, removed: 3 });
    expect(report.left.map(({ count }) => count)).toEqual([1]);
    expect(await jobs.distinct('data.to')).toEqual(['eve']);
    const rest = await runImport(library, placeOf(uri), ['--move', '--include-running']);
    expect(rest.report).toMatchObject({ jobs: { created: 1 }, removed: 1 });
  });
});

describe('what Agenda leaves behind', () => {
  const at = (ms: number): Date => new Date(Date.now() + ms);
  const aJob = (fields: object): Record<string, unknown> & { _id: ObjectId } => ({
    _id: new ObjectId(),
    name: 'mail',
    data: {},
    priority: 0,
    type: 'normal',
    nextRunAt: at(HOUR),
    lockedAt: null,
    ...fields,
  });

  it('is listed by reason, with examples, and imported if that was asked for', async () => {
    const uri = freshUri();
    const lost = aJob({ nextRunAt: null, lastRunAt: at(-HOUR) });
    const running = aJob({ lockedAt: at(-1_000) });
    await collectionOf(uri, 'agendaJobs').insertMany([
      lost,
      running,
      aJob({ nextRunAt: null, lockedAt: at(-HOUR), lastRunAt: at(-HOUR), name: 'stale' }),
      aJob({ nextRunAt: null, lastRunAt: at(-HOUR), lastFinishedAt: at(-HOUR + 5), name: 'finished' }),
      aJob({ nextRunAt: null, name: 'never' }),
      aJob({ disabled: true }),
      aJob({ repeatInterval: 'every full moon day', name: 'moon' }),
      aJob({ repeatInterval: '61 * * * *', name: 'bad cron' }),
      aJob({ repeatInterval: '0 3 * * 1', skipDays: [1], name: 'skipping' }),
      aJob({ repeatInterval: '0 3 * * *', skipDays: [0, 6], name: 'weekdays' }),
      aJob({ repeatInterval: '2 days', skipDays: [0], name: 'distance' }),
      aJob({ repeatAt: 'tomorrow at noon', name: 'phrase' }),
      aJob({ repeatAt: '3:30pm', skipDays: [0, 6], name: 'daily' }),
      aJob({ repeatInterval: '0 3 * * *', endDate: at(-HOUR), name: 'ended' }),
      aJob({ priority: '99', name: 'important' }),
      aJob({ repeatInterval: '0 3 * * *', repeatTimezone: 'UTC', lockedAt: at(-HOUR), name: 'cut off' }),
    ]);
    const { report } = await runImport('agenda', placeOf(uri), ['--dry-run']);
    expect(report.found).toEqual({ 'waiting, recurring, running or failed': 15, finished: 1 });
    expect(reasonsOf(report.left)).toEqual({
      'its process died while it ran, and Agenda never runs it again (--include-lost does)': 1,
      'it runs there now: its lock is younger than the lock lifetime (--include-running imports it)': 1,
      'it was saved without a time, so it is never due': 1,
      'it is disabled there, and has no schedule to pause': 1,
      'its interval has words that cannot be read for certain': 1,
      'its cron text or zone is not valid here, or has no run left': 1,
      'it has skipDays that a cron text cannot say': 1,
      'it has an interval and skipDays, which no schedule has together': 1,
      'its repeatAt is not a plain time of day': 1,
      'its endDate has passed': 1,
    });
    expect(reasonsOf(report.differs)).toEqual({
      'its lock was older than the lock lifetime: its run was lost, and begins again here': 1,
      'it names no zone: its times were those of the old process, and are read in the zone of --timezone': 2,
      'its priority is beyond -10 to 10, and becomes the nearest of these': 1,
      'it has a key of its own here: if your code calls mill.schedule for it, remove one of the two schedules': 3,
      'its next run is at none of its times: a retry, or moved by hand. It becomes a job beside the schedule': 2,
    });
    expect(report.left.find(({ reason }) => reason.includes('it runs there now'))?.examples).toEqual([
      running._id.toHexString(),
    ]);
    const all = await runImport('agenda', placeOf(uri), ['--include-lost', '--include-running']);
    expect(all.report.jobs.created).toBe(report.jobs.created + 2);
    const mill = aMill(mongodb({ uri }));
    expect(await mill.jobs.get(`agenda:${lost._id.toHexString()}`)).toMatchObject({ status: 'pending' });
    expect(
      (await mill.schedules.get('weekdays', (await mill.schedules.list('weekdays'))[0]!.uniqueKey))?.cron,
    ).toBe('0 3 * * 1,2,3,4,5');
    expect((await mill.schedules.list('daily'))[0]?.cron).toBe('30 15 * * 1,2,3,4,5');
    // The schedule, and the run whose process died.
    expect((await mill.jobs.find({ name: 'cut off' })).items).toHaveLength(2);
  });

  it('is moved whatever the order of its keys and the types of its values', async () => {
    const uri = freshUri();
    const nextRunAt = at(HOUR);
    const jobs = collectionOf(uri, 'agendaJobs');
    const values = { long: new Long(5), double: new Double(2), binary: new Binary(Buffer.from('a')) };
    await jobs.insertMany([
      aJob({
        nextRunAt,
        data: new Map<string, unknown>([
          ['b', 1],
          [
            '10',
            {
              ...values,
              list: [
                new Map([
                  ['c', 1],
                  ['1', 2],
                ]),
              ],
            },
          ],
          ['2', new Date(5)],
        ]),
      }),
      aJob({ nextRunAt, data: { user: new ObjectId(), ...values }, extra: /x/iu }),
      new Map<string, unknown>([
        ['name', 'mail'],
        ['nextRunAt', nextRunAt],
        ['data', null],
        ['7', 1],
        ['_id', 'x'],
      ]),
    ]);
    await runImport('agenda', placeOf(uri));
    const { report } = await runImport('agenda', placeOf(uri), ['--move']);
    expect(report).toMatchObject({ jobs: { created: 0, here: 3 }, removed: 3, left: [] });
    expect(await jobs.countDocuments()).toBe(0);
  });

  it('is removed for certain, whatever write concern the URL names', async () => {
    const uri = freshUri();
    const jobs = collectionOf(uri, 'agendaJobs');
    await jobs.insertMany([aJob({}), aJob({})]);
    const from = `${uri}${uri.includes('?') ? '&' : '?'}w=0&readPreference=secondaryPreferred`;
    const { report } = await runImport('agenda', { from, store: ['--store', uri] }, ['--move']);
    expect(report).toMatchObject({ jobs: { created: 2 }, removed: 2, left: [] });
    expect(await jobs.countDocuments()).toBe(0);
    expect(await collectionOf(uri, 'tidemill_jobs').countDocuments()).toBe(2);
  });

  it('takes string ids, a lock lifetime, one name alone, and another collection', async () => {
    const uri = freshUri();
    const jobs = client.db(databaseOf(uri)).collection<Record<string, unknown> & { _id: string }>('meteor');
    await jobs.insertMany([
      { ...aJob({ name: 'a', lockedAt: at(-60_000) }), _id: 'x1' },
      { ...aJob({ name: 'b' }), _id: 'x2' },
    ]);
    const flags = ['--from-collection', 'meteor', '--lock-lifetime', '30s', '--name', 'a'];
    const { report } = await runImport('agenda', placeOf(uri), flags);
    expect(report).toMatchObject({ jobs: { created: 1 }, otherNames: 1 });
    expect(await aMill(mongodb({ uri })).jobs.get('agenda:x1')).toMatchObject({ name: 'a' });
  });
});

describe('the retries of Pulse', () => {
  it('go on where they were, also those of a recurring job', async () => {
    const uri = freshUri();
    const old = await newPulse(uri);
    const options = { attempts: 3, backoff: { type: 'fixed', delay: HOUR } };
    old.define('flaky', () => Promise.reject(new Error('no answer')), options);
    await old.every('0 3 1 1 *', 'flaky', { n: 1 }, { ...options, timezone: 'UTC' });
    const jobs = collectionOf(uri, 'pulseJobs');
    await jobs.updateOne({ name: 'flaky' }, { $set: { nextRunAt: new Date() } });
    await old.start();
    await until(
      'it failed once',
      async () => (await jobs.countDocuments({ failCount: 1, lockedAt: null })) === 1,
    );
    await close(old);
    const { report } = await runImport('pulse', placeOf(uri), ['--move']);
    expect(report).toMatchObject({ schedules: { created: 1 }, removed: 1, left: [] });
    expect(reasonsOf(report.differs)).toEqual({
      'its next run is at none of its times: a retry, or moved by hand. It becomes a job beside the schedule': 1,
    });
    const mill = aMill(mongodb({ uri }));
    expect(await mill.schedules.get('flaky')).toMatchObject({ cron: '0 3 1 1 *' });
    const found = (await mill.jobs.find({ name: 'flaky', status: 'pending' })).items;
    const [retry] = found.filter(({ repeatInterval }) => repeatInterval === undefined);
    expect(retry).toMatchObject({
      data: { n: 1 },
      failCount: 1,
      error: 'no answer',
      retryPolicy: { type: 'fixed', interval: HOUR, maxAttempts: 4 },
    });
    expect(retry!.runAt.getTime()).toBeGreaterThan(Date.now() + HOUR / 2);
  });

  it('go on where they were', async () => {
    const uri = freshUri();
    const old = await newPulse(uri);
    old.define(
      'flaky',
      async () => {
        throw new Error('no answer');
      },
      { attempts: 3, backoff: { type: 'fixed', delay: HOUR } },
    );
    await old.now('flaky', {});
    await old.start();
    const jobs = collectionOf(uri, 'pulseJobs');
    await until(
      'it failed once',
      async () => (await jobs.countDocuments({ failCount: 1, lockedAt: null })) === 1,
    );
    await close(old);
    await runImport('pulse', placeOf(uri));
    const mill = aMill(mongodb({ uri }));
    const [job] = (await mill.jobs.find({ name: 'flaky' })).items;
    expect(job).toMatchObject({
      status: 'pending',
      failCount: 1,
      error: 'no answer',
      retryPolicy: { type: 'fixed', interval: HOUR, maxAttempts: 4 },
    });
    expect(job!.runAt.getTime()).toBeGreaterThan(Date.now() + HOUR / 2);
  });
});
