/** Importers of the MongoDB libraries whose documents are not Agenda's. */
import { ObjectId } from 'mongodb';
import { describe, expect, inject, it } from 'vitest';
import { mongodb } from '../../../src/mongodb/index.js';
import { tidemill } from '../../cli/terminal.js';
import { aMill, until } from '../../support/mills.js';
import { freshUri, rawClient } from '../../support/stores.js';
import { reasonsOf, runImport, type Place } from './imports.js';
import { newMongoCron } from './originals.js';

const HOUR = 3_600_000;
const at = (ms: number): Date => new Date(Date.now() + ms);
const client = rawClient(inject('mongoUri'));
const databaseOf = (uri: string) => client.db(new URL(uri).pathname.slice(1));
const placeOf = (uri: string): Place => ({ from: uri, store: ['--store', uri] });

describe('tidemill import monque', () => {
  const aJob = (fields: object): object => ({
    _id: new ObjectId(),
    name: 'mail',
    data: { to: 'ada' },
    status: 'pending',
    nextRunAt: at(HOUR),
    failCount: 0,
    createdAt: at(-HOUR),
    updatedAt: at(-HOUR),
    ...fields,
  });

  it('copies jobs with their keys and failures, schedules, and lost runs', async () => {
    const uri = freshUri();
    await databaseOf(uri)
      .collection('monque_jobs')
      .insertMany([
        aJob({ uniqueKey: 'ada', failCount: 2, failReason: 'no answer' }),
        aJob({ name: 'failed', status: 'failed', failCount: 10, failReason: 'the mailbox is full' }),
        aJob({ name: 'lost', status: 'processing', lockedAt: at(-HOUR), claimedBy: 'x' }),
        aJob({ name: 'runs', status: 'processing', lockedAt: at(-1_000), claimedBy: 'x' }),
        aJob({ name: 'nightly', repeatInterval: '0 3 * * *', uniqueKey: 'north' }),
        aJob({ name: 'hourly', repeatInterval: '0 * * * *', nextRunAt: at(-HOUR) }),
        aJob({ name: 'done', status: 'completed' }),
        aJob({ name: 'gone', status: 'cancelled' }),
      ]);
    const { report } = await runImport('monque', placeOf(uri));
    expect(report.found).toEqual({ pending: 3, processing: 2, failed: 1, completed: 1, cancelled: 1 });
    expect(report.jobs).toEqual({ created: 2, failed: 1, here: 0 });
    expect(report.schedules).toEqual({ created: 2, here: 0 });
    expect(reasonsOf(report.left)).toEqual({
      'it runs there now: its lock is younger than the lock lifetime (--include-running imports it)': 1,
    });
    const mill = aMill(mongodb({ uri }));
    const named = async (name: string): Promise<unknown> => (await mill.jobs.find({ name })).items[0];
    expect(await named('mail')).toMatchObject({
      uniqueKey: 'ada',
      failCount: 2,
      error: 'no answer',
      data: { to: 'ada' },
    });
    expect(await named('failed')).toMatchObject({
      status: 'failed',
      failCount: 10,
      error: 'the mailbox is full',
    });
    expect(await named('lost')).toMatchObject({ status: 'pending' });
    expect(await mill.schedules.get('nightly', 'north')).toMatchObject({ cron: '0 3 * * *' });
    expect((await mill.jobs.find({ name: 'hourly' })).items).toHaveLength(2);
    expect((await runImport('monque', placeOf(uri), ['--move'])).report).toMatchObject({
      jobs: { here: 3 },
      removed: 5,
    });
    expect(await databaseOf(uri).collection('monque_jobs').countDocuments()).toBe(3);
  });
});

describe('tidemill import monque, of schedules without a unique key', () => {
  it('keeps two of one name and cron text apart', async () => {
    const uri = freshUri();
    const aSchedule = (region: string): object => ({
      name: 'report',
      data: { region },
      status: 'pending',
      nextRunAt: at(HOUR),
      repeatInterval: '0 * * * *',
    });
    const jobs = databaseOf(uri).collection('monque_jobs');
    await jobs.insertMany([aSchedule('north'), aSchedule('south')]);
    const { report } = await runImport('monque', placeOf(uri), ['--move']);
    expect(report).toMatchObject({ schedules: { created: 2, here: 0 }, removed: 2, left: [] });
    const schedules = await aMill(mongodb({ uri })).schedules.list('report');
    expect(schedules.map(({ data }) => (data as { region: string }).region).sort()).toEqual([
      'north',
      'south',
    ]);
  });
});

describe('tidemill import monque, of recurring jobs and running ones', () => {
  const aRecurring = (fields: object): object => ({
    _id: new ObjectId(),
    name: 'report',
    data: { n: 1 },
    status: 'pending',
    repeatInterval: '0 3 * * *',
    failCount: 0,
    createdAt: at(-HOUR),
    updatedAt: at(-HOUR),
    ...fields,
  });
  const nextAt = (hour: number): Date => {
    const time = new Date(Date.now() + 24 * HOUR);
    time.setUTCHours(hour, 0, 0, 0);
    return time;
  };

  it('keeps a retry of a recurring job, with its failures, beside the schedule', async () => {
    const uri = freshUri();
    const jobs = databaseOf(uri).collection('monque_jobs');
    const nextRunAt = new Date(Math.floor(Date.now() / 1_000) * 1_000 + HOUR + 7);
    await jobs.insertMany([
      aRecurring({ uniqueKey: 'retried', nextRunAt, failCount: 3, failReason: 'no answer' }),
      // At three o'clock in the zone of the old process, which may be any.
      aRecurring({ uniqueKey: 'regular', nextRunAt: nextAt(5) }),
    ]);
    const { report } = await runImport('monque', placeOf(uri), ['--move']);
    expect(report).toMatchObject({ schedules: { created: 2 }, removed: 2, left: [] });
    const mill = aMill(mongodb({ uri }));
    const separate = (await mill.jobs.find({ name: 'report' })).items.filter(
      ({ repeatInterval }) => repeatInterval === undefined,
    );
    expect(separate).toMatchObject([{ runAt: nextRunAt, failCount: 3, error: 'no answer', data: { n: 1 } }]);
  });

  it('lists a retry of a recurring job whose schedule the new code has made before', async () => {
    const uri = freshUri();
    const jobs = databaseOf(uri).collection('monque_jobs');
    await aMill(mongodb({ uri })).schedule('0 3 * * *', 'report', { n: 1 }, { uniqueKey: 'k' });
    await jobs.insertOne(aRecurring({ uniqueKey: 'k', nextRunAt: at(HOUR), failCount: 1, failReason: 'no' }));
    const { report } = await runImport('monque', placeOf(uri), ['--move']);
    expect(report.removed).toBe(0);
    expect(reasonsOf(report.left)).toEqual({
      'it has a run at a time of its own, and its schedule is here already: run it once by hand': 1,
    });
  });

  it('tells by its last heartbeat whether a job still runs', async () => {
    const uri = freshUri();
    const running = { status: 'processing', repeatInterval: '', claimedBy: 'x', nextRunAt: at(-HOUR) };
    const jobs = databaseOf(uri).collection('monque_jobs');
    await jobs.insertMany([
      aRecurring({ ...running, name: 'long', lockedAt: at(-HOUR), lastHeartbeat: at(-1_000) }),
      aRecurring({ ...running, name: 'odd', lastHeartbeat: at(-HOUR) }),
      aRecurring({ ...running, name: 'bare' }),
    ]);
    const { report } = await runImport('monque', placeOf(uri), ['--move']);
    expect(report).toMatchObject({ jobs: { created: 2 }, removed: 2 });
    expect(await jobs.distinct('name')).toEqual(['long']);
  });
});

describe('tidemill import mongodb-cron', () => {
  it('checks documents that the library has worked on, and says which mean something else here', async () => {
    const uri = freshUri();
    const collection = databaseOf(uri).collection<{ _id: string }>('tenants');
    await collection.insertMany([
      { _id: 'once', sleepUntil: at(-1_000) },
      { _id: 'daily', sleepUntil: at(-1_000), interval: '0 0 3 * * *', repeatUntil: at(900 * HOUR) },
      { _id: 'later', sleepUntil: at(HOUR) },
    ] as never[]);
    const cron = await newMongoCron(uri, 'tenants');
    const daily = { _id: 'daily', sleepUntil: { $gt: new Date() } };
    await cron.while(async () => {
      await until(
        'both were worked on',
        async () =>
          (await collection.countDocuments({ $or: [{ _id: 'once', sleepUntil: null }, daily] })) === 2,
      );
    });
    await collection.insertMany([
      { _id: 'text', sleepUntil: '2099-01-01' },
      { _id: 'never', interval: '0 3 * * *' },
      { _id: 'short', sleepUntil: at(HOUR), interval: '*' },
      { _id: 'wrong', sleepUntil: at(HOUR), interval: '61 * * * *' },
    ] as never[]);
    const { report } = await runImport('mongodb-cron', placeOf(uri), ['--from-collection', 'tenants']);
    expect(report.served).toBe(2);
    expect(report.jobs).toEqual({ created: 0, failed: 0, here: 0 });
    expect(reasonsOf(report.left)).toEqual({
      'its times were those of the old process: set the option timezone if that was not UTC': 1,
      'its sleepUntil is no date: mongodb-cron runs it at once, mill.documents does not': 1,
      'it has an interval but no sleepUntil, so it never runs, there or here': 1,
      'its cron text has fewer than five fields, which mongodb-cron fills up': 1,
      'its cron text is not valid here': 1,
    });
    expect((await databaseOf(uri).listCollections().toArray()).map(({ name }) => name)).toEqual(['tenants']);
    // What it calls served is served: mill.documents works on the collection as it is.
    await collection.updateOne({ _id: 'later' }, { $set: { sleepUntil: new Date() } });
    const mill = aMill(mongodb({ uri }));
    const seen: unknown[] = [];
    mill.documents({
      collection: 'tenants',
      onDocument: (document) => void seen.push(document['_id']),
    });
    await mill.start();
    await until('it ran', () => seen.includes('later'));
  });
});

describe('tidemill import mongodb-cron, of documents with other field paths', () => {
  it('says why nothing is due', async () => {
    const uri = freshUri();
    await databaseOf(uri)
      .collection('tenants')
      .insertOne({ cron: { at: at(-1_000) } });
    const { out, code } = await tidemill([
      'import',
      'mongodb-cron',
      '--from',
      uri,
      '--store',
      uri,
      '--from-collection',
      'tenants',
    ]);
    expect(code).toBe(0);
    expect(out).toContain('no document has sleepUntil');
    expect(out).toContain('pass it to mill.documents as fields.sleepUntil');
  });
});

describe('tidemill import mongodash', () => {
  const task = { runImmediately: false, runLog: [], lockedTill: null };
  const fill = (uri: string, lockedTill: Date | null = null): Promise<unknown> =>
    databaseOf(uri)
      .collection<{ _id: string }>('cronTasks')
      .insertMany([
        { ...task, _id: 'due', runSince: at(-HOUR) },
        { ...task, _id: 'later', runSince: at(HOUR), lockedTill },
      ] as never[]);
  const fillReactive = async (uri: string, globals = '_mongodash_globals'): Promise<void> => {
    const db = databaseOf(uri);
    const document = { _id: 'a', title: 'x' } as never;
    await db.collection('docs').insertOne(document);
    await db.collection('docs_tasks').insertOne({
      task: 'copy',
      sourceDocId: 'a',
      status: 'completed',
      attempts: 0,
      nextRunAt: null,
      lastObservedValues: document,
      createdAt: at(-HOUR),
      updatedAt: at(-HOUR),
    });
    const tasks = { copy: { triggerConfig: { filter: null, watchProjection: {} } } };
    await db.collection(globals).insertOne({ _id: '_mongodash_planner_meta', tasks } as never);
  };
  const command = (uri: string, ...flags: string[]) =>
    tidemill(['import', 'mongodash', '--from', uri, '--json', '--yes', ...flags]);

  it('takes cron tasks over as schedules, once, after a dry run that writes nothing', async () => {
    const uri = freshUri();
    await fill(uri);
    expect(JSON.parse((await command(uri, '--dry-run')).out)).toMatchObject({ cronTasks: ['due', 'later'] });
    expect(await databaseOf(uri).listCollections({}, { nameOnly: true }).toArray()).toHaveLength(1);
    expect((await command(uri)).code).toBe(0);
    expect((await command(uri)).code).toBe(0);
    const mill = aMill(mongodb({ uri }));
    const schedules = await mill.schedules.list();
    expect(schedules.map(({ name }) => name).sort()).toEqual(['due', 'later']);
    expect(await mill.jobs.count({ name: 'due', uniqueKey: 'immediately' })).toBe(1);
    expect((await mill.audit.list()).items.map(({ action }) => action)).toEqual(['import', 'import']);
  });

  it('asks whether all instances are stopped, since one that waits leaves no trace', async () => {
    const uri = freshUri();
    await fill(uri);
    const { code, err } = await tidemill(['import', 'mongodash', '--from', uri]);
    expect(code).toBe(2);
    expect(err).toContain('waits for its next cron task cannot be seen');
    expect(err).toContain('--yes');
    expect(await databaseOf(uri).listCollections({}, { nameOnly: true }).toArray()).toHaveLength(1);
  });

  it('lists and leaves cron tasks whose schedules the new code has made before', async () => {
    const uri = freshUri();
    await fill(uri);
    await aMill(mongodb({ uri })).schedule({ every: '1h' }, 'due', { lastRun: null });
    const expected = {
      cronTasks: ['later'],
      leftOut: [
        expect.stringContaining('cron task "due": the new code has made its schedule before the take-over'),
      ],
    };
    expect(JSON.parse((await command(uri, '--dry-run')).out)).toMatchObject(expected);
    expect(JSON.parse((await command(uri, '--move')).out)).toMatchObject(expected);
    expect(await databaseOf(uri).collection('cronTasks').distinct('_id')).toEqual(['due']);
  });

  it('knows what it has taken over after the new code has run it, and writes again what mongodash has run', async () => {
    const uri = freshUri();
    await fill(uri);
    expect((await command(uri)).code).toBe(0);
    const tasks = databaseOf(uri).collection<{ _id: string }>('cronTasks');
    const runSince = at(2 * HOUR);
    await tasks.updateOne({ _id: 'later' }, { $set: { runSince } });
    expect((await command(uri)).code).toBe(0);
    const mill = aMill(mongodb({ uri }));
    expect((await mill.schedules.get('later'))?.nextRunAt).toEqual(runSince);
    const { data } = (await mill.schedules.get('later'))!;
    const { lastRun, mongodash } = data as { lastRun: unknown; mongodash: unknown };
    // As `cronTask` does at the first registration.
    await mill.schedule({ every: '1h' }, 'later', { lastRun, mongodash });
    await tasks.updateOne({ _id: 'later' }, { $set: { runSince: at(3 * HOUR) } });
    expect(JSON.parse((await command(uri)).out)).toMatchObject({
      cronTasks: ['due'],
      leftOut: [expect.stringContaining('mongodash has planned it again after the new code was started')],
    });
    await tasks.updateOne({ _id: 'later' }, { $set: { runSince } });
    expect(JSON.parse((await command(uri, '--move')).out)).toMatchObject({
      cronTasks: ['due', 'later'],
      leftOut: [],
    });
    expect(await tasks.countDocuments()).toBe(0);
  });

  it('lists and leaves reactive tasks that the new code has planned before', async () => {
    const uri = freshUri();
    await fillReactive(uri);
    const db = databaseOf(uri);
    await db
      .collection('docs_tidemill_tasks')
      .insertOne({ _id: { task: 'copy', id: 'a' } as never, task: 'copy', createdAt: new Date() });
    const { out } = await command(uri, '--move');
    expect(JSON.parse(out)).toMatchObject({
      leftOut: [
        '1 records of reactive task "copy": the new code was started before the take-over and has planned ' +
          'these documents; what mongodash had handled runs again',
      ],
    });
    expect(await db.collection('docs_tasks').countDocuments()).toBe(1);
  });

  it('reports cron tasks that have no time', async () => {
    const uri = freshUri();
    await fill(uri);
    await databaseOf(uri)
      .collection('cronTasks')
      .insertOne({ _id: 'odd', runSince: null } as never);
    expect(JSON.parse((await command(uri)).out)).toMatchObject({
      cronTasks: ['due', 'later'],
      leftOut: ['cron task "odd": its runSince is not a date, so when it is due is unknown'],
    });
  });

  it('takes reactive tasks over, says what becomes of what, and records it', async () => {
    const uri = freshUri();
    await fillReactive(uri);
    const { code, out } = await tidemill(['import', 'mongodash', '--from', uri, '--move']);
    expect(code).toBe(0);
    expect(out).toContain('completed, document unchanged   a completed task: it does not run again');
    expect(out.indexOf('What becomes of it')).toBeLessThan(out.indexOf('REACTIVE TASK'));
    expect(out).toContain('Do not start mongodash again on this database.');
    const { items } = await aMill(mongodb({ uri })).audit.list();
    expect(items.map(({ outcome }) => outcome)).toEqual([
      '1 task records written and 0 cron tasks taken over; removed from the collections of mongodash',
    ]);
  });

  it('needs --from-collection for a globals collection of another name', async () => {
    const uri = freshUri();
    await fillReactive(uri, 'our_globals');
    const without = await command(uri);
    expect(without.code).toBe(2);
    expect(without.err).toContain('--from-collection');
    const { out, code } = await command(uri, '--from-collection', 'our_globals');
    expect(code).toBe(0);
    expect(JSON.parse(out)).toMatchObject({
      reactiveTasks: [{ task: 'copy', total: 1, written: 1, handled: 1 }],
      cronTasks: [],
      leftOut: [],
    });
  });

  it('finds nothing in a database without mongodash', async () => {
    const { code, err } = await command(freshUri(), '--dry-run');
    expect(code).toBe(3);
    expect(err).toContain('nothing of mongodash');
  });

  it('is refused while an instance of mongodash runs a task', async () => {
    const uri = freshUri();
    await fill(uri, at(HOUR));
    const { code, err } = await command(uri);
    expect(code).not.toBe(0);
    expect(err).toContain('mongodash still runs on this database');
  });

  it.each([
    [['--follow'], '--follow'],
    [['--include-running'], '--include-running'],
    [['--schema', 'x'], '--schema'],
    [['--jobs-collection', 'x'], '--jobs-collection'],
    [['--globals-collection', 'x'], '--globals-collection'],
    [['--store', 'mongodb://localhost:1/other'], '--store'],
    [['--dry-run', '--move'], '--dry-run'],
  ])('refuses %j, which has no meaning for it', async (flags, named) => {
    const { code, err } = await command('mongodb://localhost:1/app', ...flags);
    expect(code).toBe(2);
    expect(err).toContain(named);
  });
});
