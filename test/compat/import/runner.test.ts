import { spawn, type ChildProcessWithoutNullStreams } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { startMongo } from '@tidemill/servers';
import { MongoClient, ObjectId } from 'mongodb';
import { describe, expect, inject, it } from 'vitest';
import type { ImportedJob, ImportedSchedule, Reading, Source } from '../../../src/cli/import/reading.js';
import { Runner, type Results } from '../../../src/cli/import/runner.js';
import { StoreRecorder } from '../../../src/cli/import/storing.js';
import type { Tidemill } from '../../../src/index.js';
import { memory } from '../../../src/memory/index.js';
import { mongodb } from '../../../src/mongodb/index.js';
import { tidemill } from '../../cli/terminal.js';
import { behindProxy } from '../../support/flaky-proxy.js';
import { aMill, until } from '../../support/mills.js';
import { freshSchema, freshUri, rawClient } from '../../support/stores.js';
import { runImport, reasonsOf } from './imports.js';
import { newAgenda } from './originals.js';

const client = rawClient(inject('mongoUri'));
const databaseOf = (uri: string) => client.db(new URL(uri).pathname.slice(1));
const main = fileURLToPath(new URL('../../../src/cli/main.ts', import.meta.url));

const start = (args: readonly string[]): ChildProcessWithoutNullStreams =>
  spawn(process.execPath, ['--import', 'tsx', main, ...args]);

const soon = (): Date => new Date(Date.now() + 3_600_000);

const aJob = (n: number, fields: Partial<ImportedJob> = {}): Reading => {
  const job = { id: `old:${String(n)}`, name: 'mail', data: { n }, runAt: soon(), ...fields };
  return { kind: 'job', key: String(n), name: job.name, record: n, job };
};

const aSchedule = (fields: Partial<ImportedSchedule> = {}): Reading => ({
  kind: 'schedule',
  key: 'nightly',
  name: 'nightly',
  record: 'nightly',
  schedule: { name: 'nightly', times: '0 3 * * *', timezone: 'UTC', data: {}, ...fields },
});

/** A source of one page, in which records change after they were read. */
const sourceOf = (page: readonly Reading[], changed: readonly unknown[] = []): Source => ({
  place: 'a list',
  mapping: [],
  count: async () => [],
  async *read() {
    yield page;
  },
  version: String,
  remove: async (records) => records.map((record) => !changed.includes(record)),
  [Symbol.asyncDispose]: async () => undefined,
});

const IN_BOTH = 'it changed there after it was stored here: it is in both';

/** Imports pages into a memory store. */
async function aStore(): Promise<{
  mill: Tidemill;
  /** A runner for several passes. */
  runnerOf: (source: Source, move?: boolean) => Runner;
  /** Stores records in a process that is killed when it pauses a schedule. */
  killed: (source: Source) => Promise<unknown>;
  take: (source: Source, move?: boolean) => Promise<Results>;
}> {
  const store = memory();
  const mill = aMill(store);
  await mill.enqueueMany([]);
  const runnerOf = (source: Source, move = true, through = mill): Runner => {
    const storing = new StoreRecorder(through, store, 'old:');
    return new Runner({ source, storing, names: undefined, dryRun: false, move });
  };
  const schedules = {
    pause: () => Promise.reject(new Error('killed')),
  };
  return {
    mill,
    runnerOf,
    killed: (source) => {
      const dying = new Proxy(mill, {
        get: (target, key) => {
          const value: unknown = key === 'schedules' ? schedules : Reflect.get(target, key, target);
          return typeof value === 'function' ? (value.bind(target) as unknown) : value;
        },
      });
      return onePass(runnerOf(source, false, dying));
    },
    take: async (source, move = false) => {
      const runner = runnerOf(source, move);
      await onePass(runner);
      return runner.results;
    },
  };
}

const onePass = (runner: Runner): Promise<void> => runner.pass(new AbortController().signal, () => undefined);

describe('an import', () => {
  it('gives two imported jobs of one unique key to the first, and drops the key of the second', async () => {
    const { mill, take } = await aStore();
    const page = [aJob(1, { uniqueKey: 'k' }), aJob(2, { uniqueKey: 'k' })];
    const results = await take(sourceOf(page));
    expect(results.jobs).toEqual({ created: 2, failed: 0, here: 0 });
    expect(reasonsOf(results.differs)).toEqual({
      'it shares its unique key with another imported job, and has none here': 1,
    });
    expect((await mill.jobs.get('old:2'))?.uniqueKey).toBeUndefined();
    expect((await take(sourceOf(page))).jobs).toEqual({ created: 0, failed: 0, here: 2 });
  });

  it('leaves a job out if a live job of the new producers has its unique key', async () => {
    const { mill, take } = await aStore();
    await mill.enqueue('mail', { n: 'new' }, { uniqueKey: 'k' });
    const results = await take(sourceOf([aJob(1, { uniqueKey: 'k' })]), true);
    expect(results).toMatchObject({ jobs: { created: 0 }, removed: 0 });
    expect(reasonsOf(results.left)).toEqual({
      'a live job here has its name and unique key: that one stands for it': 1,
    });
  });

  it('takes out again what the source has changed while it was moved', async () => {
    const { mill, take } = await aStore();
    const results = await take(sourceOf([aJob(1), aJob(2), aSchedule()], [2, 'nightly']), true);
    expect(results).toMatchObject({ jobs: { created: 1 }, schedules: { created: 0 }, removed: 1 });
    expect(reasonsOf(results.left)).toEqual({
      'it changed there while it was moved, and was left there; run the command again': 2,
    });
    expect(await mill.jobs.get('old:2')).toBeUndefined();
    expect(await mill.schedules.list()).toEqual([]);
    await take(sourceOf([aJob(3)]));
    expect(reasonsOf((await take(sourceOf([aJob(3)], [3]), true)).left)).toEqual({
      'it changed there after it was stored here: it is in both': 1,
    });
  });

  it('moves what an earlier run has stored, unless it has another payload or time by now', async () => {
    const { mill, take } = await aStore();
    const runAt = soon();
    const [same, other, later] = [1, 2, 3].map((n) => aJob(n, { runAt }));
    await take(sourceOf([same!, other!, later!, aSchedule({ data: { n: 1 } })]));
    const page = [
      same!,
      aJob(2, { runAt, data: { n: 'changed' } }),
      aJob(3, { runAt: new Date(runAt.getTime() + 1) }),
      aSchedule({ data: { n: 2 } }),
    ];
    const results = await take(sourceOf(page), true);
    expect(results).toMatchObject({ jobs: { created: 0, here: 1 }, removed: 1 });
    expect(reasonsOf(results.left)).toEqual({
      [IN_BOTH]: 2,
      'a schedule of its name and key is here with another payload: it is in both': 1,
    });
    expect((await mill.jobs.get('old:2'))?.data).toEqual({ n: 2 });
  });

  it('keeps a record that was enqueued anew after its first version has run here', async () => {
    const { mill, take, runnerOf } = await aStore();
    const ran: unknown[] = [];
    mill.job('mail', ({ data }) => void ran.push(data));
    const due = aJob(1, { runAt: new Date(1_000) });
    await take(sourceOf([due]));
    await mill.start();
    await until('it ran', async () => (await mill.jobs.get('old:1'))?.status === 'completed');
    const runner = runnerOf(sourceOf([aJob(1, { runAt: new Date(2_000) })]));
    await onePass(runner);
    await onePass(runner);
    expect(runner.results).toMatchObject({ jobs: { here: 0 }, removed: 0 });
    expect(reasonsOf(runner.results.left)).toEqual({ [IN_BOTH]: 1 });
    expect((await take(sourceOf([due]), true)).removed).toBe(1);
    expect(ran).toEqual([{ n: 1 }]);
  });

  it('does not run a job again that has run here while its move failed', async () => {
    const { mill, runnerOf } = await aStore();
    const ran: unknown[] = [];
    mill.job('mail', ({ data }) => void ran.push(data));
    await mill.start();
    const page = [aJob(1, { runAt: new Date(1_000) })];
    const runner = runnerOf({
      ...sourceOf(page),
      remove: async (records) => {
        await until('it ran', async () => (await mill.jobs.get('old:1'))?.status === 'completed');
        return records.map(() => false);
      },
    });
    await onePass(runner);
    await onePass(runner);
    expect(reasonsOf(runner.results.left)).toEqual({ [IN_BOTH]: 1 });
    expect(await mill.jobs.get('old:1')).toMatchObject({ status: 'completed' });
    expect(ran).toEqual([{ n: 1 }]);
  });

  it('tries a record twice that changes while it is moved, and no more', async () => {
    const { mill, runnerOf } = await aStore();
    const failed = { failed: true, failCount: 1, failReason: 'no', failKind: 'error' } as const;
    const tried: unknown[] = [];
    const runner = runnerOf({
      ...sourceOf([aJob(1), aJob(2, { past: { ...failed, firstFailedAt: new Date(1) } })]),
      remove: async (records) => {
        tried.push(...records);
        return records.map(() => false);
      },
    });
    for (let pass = 0; pass < 4; pass += 1) await onePass(runner);
    expect(tried).toEqual([1, 2, 1, 2]);
    expect(reasonsOf(runner.results.left)).toEqual({
      'it changed there while it was moved, and was left there; run the command again': 2,
    });
    expect(await mill.jobs.count({})).toBe(0);
  });

  it('lists a record once that changes there while its copies are followed', async () => {
    const { mill, runnerOf } = await aStore();
    let page = [aJob(1), aJob(2)];
    const source = {
      ...sourceOf([]),
      async *read() {
        yield page;
      },
    };
    const runner = runnerOf(source, false);
    await onePass(runner);
    page = [{ ...aJob(1, { data: { n: 'changed' } }), record: 'changed' }, aJob(2)];
    await onePass(runner);
    page = [{ ...aJob(1), record: 'changed again' }, aJob(2)];
    await onePass(runner);
    expect(runner.results.jobs).toEqual({ created: 2, failed: 0, here: 0 });
    expect(reasonsOf(runner.results.left)).toEqual({ [IN_BOTH]: 1 });
    expect((await mill.jobs.get('old:1'))?.data).toEqual({ n: 1 });
  });

  it('moves a record again that is made anew under its key after it was moved', async () => {
    const { mill, runnerOf } = await aStore();
    const runner = runnerOf(sourceOf([aSchedule()]));
    await onePass(runner);
    await mill.schedules.remove('nightly');
    await onePass(runner);
    expect(runner.results).toMatchObject({ schedules: { created: 2 }, removed: 2 });
    expect(await mill.schedules.list()).toHaveLength(1);
  });

  it('lists an overdue run of a schedule that the new code has created before', async () => {
    const { mill, take } = await aStore();
    await mill.schedule('0 3 * * *', 'nightly');
    const overdue = { id: 'old:nightly@1', runAt: new Date(1) };
    const results = await take(sourceOf([aSchedule({ separateRun: overdue })]), true);
    expect(results).toMatchObject({ schedules: { created: 0, here: 0 }, removed: 0 });
    expect(reasonsOf(results.left)).toEqual({
      'it has a run that is overdue, and its schedule is here already: run it once by hand': 1,
    });
    const covered = { id: 'old:nightly@2', runAt: new Date(Date.now() + 1) };
    expect((await take(sourceOf([aSchedule({ separateRun: covered })]), true)).removed).toBe(1);
  });

  it('runs no disabled recurring job if it is killed before it has paused the schedule', async () => {
    const { mill, take, killed } = await aStore();
    const repeatUntil = new Date(Date.now() + 86_400_000);
    const page = [aSchedule({ times: '* * * * * *', paused: true, repeatUntil })];
    await expect(killed(sourceOf(page))).rejects.toThrow('killed');
    const begun = await mill.schedules.get('nightly');
    expect(begun?.nextRunAt?.getTime()).toBeGreaterThan(Date.now() + 365 * 86_400_000);
    expect((await take(sourceOf(page))).schedules).toEqual({ created: 1, here: 0 });
    const finished = await mill.schedules.get('nightly');
    expect(finished).toMatchObject({ paused: true, cron: '* * * * * *', repeatUntil });
    expect(finished).not.toHaveProperty('startAt');
    expect((await take(sourceOf(page))).schedules).toEqual({ created: 0, here: 1 });
  });

  it('resumes what a killed run had begun to pause, if it was enabled there since', async () => {
    const { mill, take, killed } = await aStore();
    await expect(killed(sourceOf([aSchedule({ paused: true })]))).rejects.toThrow('killed');
    await mill.schedules.pause('nightly');
    await take(sourceOf([aSchedule()]));
    const { paused, nextRunAt } = (await mill.schedules.get('nightly'))!;
    expect(paused).toBe(false);
    expect(nextRunAt!.getTime()).toBeLessThan(Date.now() + 2 * 86_400_000);
  });

  it('leaves a schedule alone that was changed here, and pauses a new one that was disabled', async () => {
    const { mill, take } = await aStore();
    await mill.schedule('0 4 * * *', 'nightly');
    const results = await take(sourceOf([aSchedule()]));
    expect(reasonsOf(results.left)).toEqual({
      'a schedule of its name and key is here with other times: that one stays': 1,
    });
    expect((await mill.schedules.get('nightly'))?.cron).toBe('0 4 * * *');
    await take(sourceOf([aSchedule({ name: 'off', paused: true })]));
    expect((await mill.schedules.get('off'))?.paused).toBe(true);
  });

  it('runs an overdue run of a schedule once, however often it is imported', async () => {
    const { mill, take } = await aStore();
    const retryPolicy = { type: 'fixed', interval: 5, maxAttempts: 2 } as const;
    const separateRun = { id: 'old:nightly@1', runAt: new Date(1) };
    const page = [aSchedule({ separateRun, retryPolicy, timeoutMs: 9_000 })];
    expect((await take(sourceOf(page))).schedules).toEqual({ created: 1, here: 0 });
    expect((await take(sourceOf(page))).schedules).toEqual({ created: 0, here: 1 });
    expect((await mill.jobs.find({ name: 'nightly' })).items.map(({ id }) => id)).toContain('old:nightly@1');
    expect(await mill.jobs.get('old:nightly@1')).toMatchObject({ retryPolicy, timeoutMs: 9_000 });
    await mill.jobs.remove('old:nightly@1');
    await take(sourceOf(page));
    expect(await mill.jobs.get('old:nightly@1')).toBeUndefined();
  });

  it('reports a payload that the store cannot hold, and imports the rest', async () => {
    const uri = freshUri();
    const nextRunAt = soon();
    await databaseOf(uri)
      .collection('agendaJobs')
      .insertMany([
        { name: 'mail', nextRunAt, data: { user: new ObjectId() } },
        { name: 'mail', nextRunAt, data: { user: 'ada' } },
      ]);
    const store = ['--store', inject('postgresUrl'), '--schema', freshSchema()];
    const { report } = await runImport('agenda', { from: uri, store });
    expect(report.jobs.created).toBe(1);
    expect(report.left).toMatchObject([
      { reason: 'its payload has a value that this store cannot hold', count: 1 },
    ]);
    expect(report.left[0]?.examples[0]).toContain(': data.user is an instance of ObjectId');
    const mongo = await runImport('agenda', { from: uri, store: ['--store', uri] });
    expect(mongo.report).toMatchObject({ jobs: { created: 2 }, left: [] });
  });
});

describe('tidemill import, as a process', () => {
  const COUNT = 4_000;

  it('continues after a kill without a duplicate, follows new jobs, and ends in order at SIGINT', async () => {
    const uri = freshUri();
    const source = databaseOf(uri).collection('agendaJobs');
    const nextRunAt = soon();
    const documents = Array.from({ length: COUNT }, (_, n) => ({
      name: 'mail',
      type: 'normal',
      nextRunAt,
      data: { n },
    }));
    await source.insertMany(documents);
    const args = ['import', 'agenda', '--from', uri, '--store', uri];
    const first = start(args);
    const killed = once(first, 'exit');
    let said = '';
    first.stderr.on('data', (data: Buffer) => {
      said += data.toString();
      if (said.includes('of 4,000 records')) first.kill('SIGKILL');
    });
    expect(await killed).toEqual([null, 'SIGKILL']);
    const jobs = databaseOf(uri).collection('tidemill_jobs');
    const before = await jobs.countDocuments();
    expect(before).toBeGreaterThan(0);
    expect(before).toBeLessThan(COUNT);

    const second = start([...args, '--follow', '--json']);
    let out = '';
    second.stdout.on('data', (data: Buffer) => (out += data.toString()));
    const ended = once(second, 'close');
    await until('all are here', async () => (await jobs.countDocuments()) === COUNT);
    await source.insertOne({ name: 'mail', nextRunAt, data: { n: COUNT } });
    await until('the new one as well', async () => (await jobs.countDocuments()) === COUNT + 1);
    second.kill('SIGINT');
    expect(await ended).toEqual([0, null]);
    const report = JSON.parse(out) as Results;
    expect(report.jobs.created + report.jobs.here).toBe(COUNT + 1);
    expect(report.jobs.here).toBeGreaterThanOrEqual(before);
    const numbers = await jobs.distinct('data.n');
    expect(numbers).toHaveLength(COUNT + 1);
    expect(await source.countDocuments()).toBe(COUNT + 1);
  });
});

describe('tidemill import --move, as a process', () => {
  it('loses and doubles nothing if it is killed between storing and removing', async () => {
    await using server = await startMongo({ failPoints: true });
    const uri = freshUri(server.uri);
    const agenda = await newAgenda(uri);
    for (let n = 0; n < 20; n += 1) await agenda.schedule(soon(), 'mail', { n });
    await agenda.every('0 3 * * *', 'report', {}, { timezone: 'UTC', skipImmediate: true });
    await agenda.stop();
    await using own = new MongoClient(server.uri);
    const db = own.db(new URL(uri).pathname.slice(1));
    const source = db.collection('agendaJobs');
    const jobs = db.collection('tidemill_jobs');
    // Every deletion of this process waits, and fails in the end.
    const failPoint = { configureFailPoint: 'failCommand' } as const;
    const data = {
      failCommands: ['delete'],
      namespace: source.namespace,
      blockConnection: true,
      blockTimeMS: 60_000,
      errorCode: 11_600,
    };
    await own.db('admin').command({ ...failPoint, mode: 'alwaysOn', data });
    const first = start(['import', 'agenda', '--from', uri, '--store', uri, '--move']);
    const killed = once(first, 'exit');
    try {
      await until('all are stored', async () => (await jobs.countDocuments()) === 21);
      first.kill('SIGKILL');
      expect(await killed).toEqual([null, 'SIGKILL']);
      expect(await source.countDocuments()).toBe(21);
    } finally {
      await own.db('admin').command({ ...failPoint, mode: 'off' });
    }
    const { report } = await runImport('agenda', { from: uri, store: ['--store', uri] }, ['--move']);
    expect(report).toMatchObject({ jobs: { created: 0, here: 20 }, schedules: { created: 0, here: 1 } });
    expect(report).toMatchObject({ removed: 21, left: [] });
    expect([await source.countDocuments(), await jobs.countDocuments()]).toEqual([0, 21]);
  });
});

describe('tidemill import --follow', () => {
  it('moves what old producers still enqueue, until it is interrupted', async () => {
    const uri = freshUri();
    const agenda = await newAgenda(uri);
    await agenda.schedule(soon(), 'mail', { n: 1 });
    const end = new AbortController();
    const place = { from: uri, store: ['--store', uri] };
    const following = runImport('agenda', place, ['--follow', '--move'], { interrupt: end.signal });
    const mill = aMill(mongodb({ uri }));
    const here = (count: number): Promise<unknown> =>
      until(`${String(count)} are here`, async () => (await mill.jobs.count({ name: 'mail' })) === count);
    await here(1);
    await agenda.schedule(soon(), 'mail', { n: 2 });
    await here(2);
    end.abort();
    const { report } = await following;
    expect(report).toMatchObject({ jobs: { created: 2, here: 0 }, removed: 2, left: [] });
    await agenda.stop();
  });
});

describe('tidemill import --follow, if the source cannot be reached', () => {
  it('says so without credentials, and goes on when it is back', async () => {
    const { proxy, uri, direct } = await behindProxy();
    const jobs = databaseOf(direct).collection('agendaJobs');
    await jobs.insertOne({ name: 'mail', nextRunAt: soon(), data: { n: 1 } });
    const end = new AbortController();
    const place = { from: uri, store: ['--store', direct] };
    let notes = '';
    const onNote = (text: string): void => void (notes += text);
    const following = runImport('agenda', place, ['--follow'], { interrupt: end.signal, onNote });
    const mill = aMill(mongodb({ uri: direct }));
    const here = (count: number): Promise<unknown> =>
      until(`${String(count)} are here`, async () => (await mill.jobs.count({ name: 'mail' })) === count);
    await here(1);
    await until('it follows', () => notes.includes('Following'));
    proxy.lose = Infinity;
    await until('it says so', () => notes.includes('trying again'));
    proxy.lose = 0;
    await jobs.insertOne({ name: 'mail', nextRunAt: soon(), data: { n: 2 } });
    await here(2);
    end.abort();
    expect((await following).report.jobs).toMatchObject({ created: 2 });
    const { password } = new URL(uri);
    if (password !== '') expect(notes).not.toContain(password);
  });
});

describe('the command line of tidemill import', () => {
  it('prints counts, what becomes of them, and what is left, without credentials', async () => {
    const uri = freshUri();
    await databaseOf(uri)
      .collection('agendaJobs')
      .insertMany([
        { name: 'mail', nextRunAt: soon(), data: {} },
        { name: 'mail', nextRunAt: null, data: {} },
      ]);
    const args = ['import', 'agenda', '--from', uri, '--store', uri, '--dry-run'];
    const { code, out: text, err } = await tidemill(args);
    expect(code).toBe(0);
    expect(err).toBe('2 of 2 records\n');
    for (const part of [
      'Found',
      'What becomes of it',
      'Would import',
      'jobs       1 to run',
      'Not imported',
      'it was saved without a time, so it is never due',
    ])
      expect(text).toContain(part);
    const { password } = new URL(uri);
    if (password !== '') expect(text).not.toContain(password);
  });

  it.each([
    [
      ['import', 'cronjob', '--from', 'mongodb://localhost/a'],
      2,
      'Allowed choices are agenda, graphile-worker, mongodash',
    ],
    [['import', 'agenda'], 2, "required option '--from <url>'"],
    [
      ['import', 'agenda', '--from', 'x', '--dry-run', '--move', '--store', 'file:./x'],
      2,
      'leave out --move and --follow',
    ],
    [
      ['import', 'mongodb-cron', '--from', 'x', '--move', '--store', 'file:./x'],
      2,
      'documents stay where they are',
    ],
    [
      ['import', 'agenda', '--from', 'postgres://localhost/a', '--store', 'mongodb://localhost/a'],
      2,
      '--from must be mongodb://',
    ],
    [
      ['import', 'pg-boss', '--from', 'mongodb://localhost/a', '--store', 'mongodb://localhost/a'],
      2,
      '--from must be postgres://',
    ],
  ])('refuses %j with exit code %d', async (args, exit, said) => {
    const { code, err } = await tidemill(args);
    expect(err).toContain(said);
    expect(code).toBe(exit);
  });

  it('says which collections and schemas there are if the library has none', async () => {
    const uri = freshUri();
    await databaseOf(uri).collection('jobs').insertOne({ a: 1 });
    const { code, err } = await tidemill(['import', 'agenda', '--from', uri, '--store', uri]);
    expect(code).toBe(3);
    expect(err).toContain(
      'has no collection "agendaJobs". Name another one with --from-collection; it has: jobs',
    );
    const url = inject('postgresUrl');
    const boss = await tidemill([
      'import',
      'pg-boss',
      '--from',
      url,
      '--from-schema',
      'nowhere',
      '--store',
      uri,
    ]);
    expect(boss.code).toBe(3);
    expect(boss.err).toContain('There is no table nowhere.job');
  });
});
