import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { MongoClient, type Collection, type Document } from 'mongodb';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Tidemill } from '../../../src/index.js';
import { mongodb } from '../../../src/mongodb/index.js';
import * as mongodash from '../../../src/compat/mongodash/index.js';
import { takeOver } from '../../../src/compat/mongodash/take-over/take-over.js';
import { until } from '../../support/mills.js';
import { freshUri } from '../../support/stores.js';

const { init, reactiveTask, cronTask, getReactiveTasks, serveDashboard } = mongodash;
const client = new MongoClient(freshUri());
const infos: string[] = [];
const errors: string[] = [];
const ran: string[] = [];
let beforeInit: readonly unknown[];
const replaced = { replaced: true } as unknown as Collection;

const codeOf = (call: () => unknown): Promise<unknown> =>
  Promise.resolve()
    .then(call)
    .then(
      () => 'accepted',
      (error: unknown) => (error as { code?: unknown }).code,
    );

// One process has one default, as with mongodash: everything here shares it.
beforeAll(async () => {
  beforeInit = await Promise.all([
    codeOf(() => mongodash.getMongoClient()),
    codeOf(() => mongodash.getCollection('x')),
    codeOf(() => mongodash.startCronTasks()),
    codeOf(() => mongodash.stopCronTasks()),
    codeOf(() => mongodash.startReactiveTasks()),
    codeOf(() => reactiveTask({ task: 'x', collection: 'x', handler: () => Promise.resolve() })),
    codeOf(() => getReactiveTasks({})),
    codeOf(() => mongodash.countReactiveTasks({})),
    codeOf(() => mongodash.retryReactiveTasks({})),
    codeOf(() => mongodash.getPrometheusMetrics()),
    codeOf(() => mongodash.getCronTasksList()),
    codeOf(() => mongodash.withLock('x', () => Promise.resolve())),
  ]);
  await init({
    mongoClient: client,
    globalsCollection: client.db().collection('my_globals'),
    collectionFactory: <T extends Document>(name: string) =>
      name === 'replaced' ? (replaced as unknown as Collection<T>) : null,
    onInfo: ({ code }) => infos.push(code),
    onError: ({ message }) => errors.push(message),
    instanceId: 'me',
    cronTaskConcurrency: 2,
    cronTaskFilter: ({ taskId }) => taskId !== 'not here',
    taskCaller: (task) => task(),
    reactiveTaskConcurrency: 3,
    reactiveTaskFilter: ({ task }) => task !== 'not here',
    reactiveTaskCleanupInterval: '1h',
    visibilityTimeoutMs: 5_000,
    monitoring: { scrapeMode: 'local', pushIntervalMs: 1_000 },
  });
  mongodash.configureForTesting({ debounce: 10, minPollMs: 10 });
});

afterAll(async () => {
  mongodash.stopCronTasks();
  await mongodash.stopReactiveTasks();
  await client.close();
});

const things = (): Collection<{ _id: string; kind: string; size?: number }> =>
  mongodash.getCollection('things');
const define = (task: string, more: object = {}): Promise<void> =>
  reactiveTask<{ _id: string; kind: string; size?: number }>({
    task,
    collection: 'things',
    filter: { kind: task },
    watchProjection: { size: 1 },
    handler: ({ docId }) => Promise.resolve(void ran.push(`${task} ${docId}`)),
    ...more,
  });
const runs = (name: string): number => ran.filter((one) => one === name).length;

describe('init', () => {
  it('is named by the error of every function that needs it', () => {
    expect(beforeInit).toEqual(beforeInit.map(() => 'NOT_INITIALIZED'));
  });

  it('can be called once', async () => {
    expect(await codeOf(() => init({ mongoClient: client }))).toBe('ALREADY_INITIALIZED');
  });

  it('keeps the given client, and the collections of the factory', () => {
    expect(mongodash.getMongoClient()).toBe(client);
    expect(mongodash.getCollection('replaced')).toBe(replaced);
    expect(mongodash.getCollection('things').dbName).toBe(client.db().databaseName);
  });
});

describe('reactive tasks of mongodash', () => {
  it('run again when a document comes back to the filter with the values that it had', async () => {
    await define('back');
    await mongodash.startReactiveTasks();
    await things().insertOne({ _id: 'b', kind: 'back', size: 1 });
    await until('it ran', () => runs('back b') === 1);
    await things().updateOne({ _id: 'b' }, { $set: { kind: 'away' } });
    // Planned in order: once this one has run, the planner has seen the other leave.
    await things().insertOne({ _id: 'c', kind: 'back', size: 1 });
    await until('the next ran', () => runs('back c') === 1);
    await things().updateOne({ _id: 'b' }, { $set: { kind: 'back' } });
    await until('it ran again', () => runs('back b') === 2);
  });

  it('can be added while the others run', async () => {
    await define('added');
    await things().insertOne({ _id: 'a', kind: 'added' });
    await until('it ran', () => runs('added a') === 1);
    expect(await codeOf(() => define('added'))).toBe('BAD_OPTION');
  });

  it('wait where the filter of the instance refuses them', async () => {
    await define('not here');
    await define('here');
    await things().insertMany([
      { _id: 'n', kind: 'not here' },
      { _id: 'h', kind: 'here' },
    ]);
    await until('the other ran', () => runs('here h') === 1);
    await until('it waits', async () => (await mongodash.countReactiveTasks({ task: 'not here' })) === 1);
    expect(runs('not here n')).toBe(0);
  });

  it('are kept beside the records of mongodash, and coordinated where init says', async () => {
    const names = (await client.db().listCollections({}, { nameOnly: true }).toArray()).map(
      ({ name }) => name,
    );
    expect(names).toEqual(expect.arrayContaining(['things_tidemill_tasks', 'my_globals']));
    expect(names).not.toContain('things_tasks');
    expect(names).not.toContain('_tidemill_globals');
  });

  it('complete at once without a session, and throttle their own name', async () => {
    const calls: string[] = [];
    await define('throttles', {
      handler: async ({
        docId,
        throttleAll,
        markCompleted,
      }: mongodash.ReactiveTaskContext<{ _id: string }>) => {
        calls.push(docId);
        throttleAll(60_000);
        await markCompleted();
      },
    });
    await things().insertOne({ _id: 't1', kind: 'throttles' });
    const status = async (id: string): Promise<unknown> =>
      (await getReactiveTasks({ task: 'throttles', sourceDocFilter: { _id: id as never } })).items[0]?.status;
    await until('it is complete', async () => (await status('t1')) === 'completed');
    await things().insertOne({ _id: 't2', kind: 'throttles' });
    await until('the second waits', async () => (await status('t2')) === 'pending');
    expect(calls).toEqual(['t1']);
  });

  it('are sorted by their times only', async () => {
    const sorted = await getReactiveTasks({ task: 'back' }, { sort: { field: 'createdAt', direction: -1 } });
    expect(sorted.items.map(({ sourceDocId }) => sourceDocId)).toEqual(['c', 'b']);
    const odd = { sort: { field: 'lastError', direction: 1 } } as const;
    expect(await codeOf(() => getReactiveTasks({}, odd))).toBe('BAD_OPTION');
  });

  it('are shortened for tests before they are defined', async () => {
    expect(await codeOf(() => mongodash.configureForTesting())).toBe('BAD_OPTION');
  });

  it('have metrics', async () => {
    const text = await (await mongodash.getPrometheusMetrics())?.metrics();
    expect(text).toContain('reactive_tasks_duration_seconds');
  });
});

describe('cron tasks of mongodash', () => {
  it('do not run where the filter of the instance refuses them', async () => {
    await cronTask('not here', 10, () => void ran.push('cron not here'));
    await cronTask('here', 10, () => void ran.push('cron here'));
    await until('the other runs', () => runs('cron here') > 2);
    expect(runs('cron not here')).toBe(0);
    mongodash.stopCronTasks();
  });

  it('fail as one run: the error is reported once, and the next run is at its time', async () => {
    await cronTask('breaks', '1h', () => Promise.reject(new Error('no paper')));
    await mongodash.scheduleCronTaskImmediately('breaks');
    mongodash.startCronTasks();
    const broken = async (): Promise<mongodash.CronTaskRecord | undefined> =>
      (await mongodash.getCronTasksList({ filter: '^breaks$' })).items[0];
    await until('it failed', async () => (await broken())?.status === 'failed');
    expect((await broken())?.lastRun?.error).toBe('Error: no paper');
    expect(errors.filter((message) => message === 'no paper')).toHaveLength(1);
    expect(Number((await broken())?.nextRunAt)).toBeGreaterThan(Date.now() + 3_500_000);
  });

  it('run once at a time, also when they are asked for', async () => {
    let end = (): void => undefined;
    await cronTask('slow', '1h', () => new Promise<void>((resolve) => (end = resolve)));
    const first = mongodash.runCronTask('slow');
    const isRunning = async (): Promise<boolean> =>
      (await mongodash.getCronTasksList({ filter: '^slow$' })).items[0]?.status === 'running';
    await until('it runs', isRunning);
    expect(await codeOf(() => mongodash.runCronTask('slow'))).toBe('BUSY');
    end();
    await first;
    expect(await isRunning()).toBe(false);
  });

  it('take a changed interval at once', async () => {
    const other = new Tidemill({ store: mongodb({ client }) });
    await other.schedule({ every: '1h' }, 'steady', { lastRun: null });
    await cronTask('steady', '2h', () => undefined);
    const { nextRunAt } = (await mongodash.getCronTasksList({ filter: 'steady' })).items[0] ?? {};
    const stored = await client.db().collection('tidemill_jobs').findOne({ name: 'steady' });
    await other.stop();
    expect(stored).toMatchObject({ repeatInterval: '@every 7200000ms', nextRunAt });
  });

  it.each(['24h', 'CRON 0 3 * * *'])(
    'run once if they became due between take-over and start, at %s',
    async (interval) => {
      const id = `overdue ${interval}`;
      const cronTasks = client.db().collection<{ _id: string }>('cronTasks');
      const runSince = new Date(Date.now() + 3_600_000);
      await cronTasks.insertOne({ _id: id, runSince, runImmediately: false, runLog: [] } as never);
      await takeOver({ client, move: true });
      const jobs = client.db().collection('tidemill_jobs');
      const dueAt = new Date(Date.now() - 60_000);
      await jobs.updateOne({ name: id, nextRunAt: runSince }, { $set: { nextRunAt: dueAt } });
      await cronTask(id, interval, () => void ran.push(id));
      mongodash.startCronTasks();
      const task = async (): Promise<mongodash.CronTaskRecord | undefined> =>
        (await mongodash.getCronTasksList()).items.find(({ _id }) => _id === id);
      await until('it ran', async () => (await task())?.status === 'idle' && runs(id) > 0);
      expect(runs(id)).toBe(1);
      expect(Number((await task())?.nextRunAt)).toBeGreaterThan(Date.now());
      expect(
        await jobs.countDocuments({ name: id, nextRunAt: { $lte: new Date() }, status: 'pending' }),
      ).toBe(0);
    },
  );

  it('count a run as done whose lock was lost', async () => {
    const locks = client.db().collection<{ _id: string }>('my_globals');
    await cronTask('cut off', '1h', async () => {
      ran.push('cut off');
      const taken = { $set: { token: 'of another' } };
      expect((await locks.updateOne({ _id: 'lock:cron task cut off' }, taken)).matchedCount).toBe(1);
    });
    await mongodash.scheduleCronTaskImmediately('cut off');
    mongodash.startCronTasks();
    const task = async (): Promise<mongodash.CronTaskRecord | undefined> =>
      (await mongodash.getCronTasksList({ filter: '^cut off$' })).items[0];
    await until('the loss is reported', () => errors.some((message) => message.includes('was lost')));
    await until('the run is recorded', async () => (await task())?.runImmediately === false);
    expect((await task())?.lastRun?.error).toBeNull();
    expect(runs('cut off')).toBe(1);
  });

  it('report what they do', () => {
    expect(infos).toEqual(
      expect.arrayContaining(['cronTaskStarted', 'cronTaskFinished', 'cronTaskFailed', 'cronTaskScheduled']),
    );
    expect(infos).toEqual(
      expect.arrayContaining(['reactiveTaskStarted', 'reactiveTaskFinished', 'reactiveTaskPlannerStarted']),
    );
  });
});

describe('the dashboard', () => {
  async function get(
    path: string,
    serve: (request: IncomingMessage) => mongodash.ServeDashboardOptions,
  ): Promise<Response> {
    const server = createServer((request, response) => {
      void serveDashboard(request, response, serve(request)).then((isServed) => {
        if (!isServed) response.writeHead(404).end('not served');
      });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    try {
      const answer = await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}${path}`);
      return new Response(await answer.text(), { status: answer.status });
    } finally {
      server.close();
    }
  }
  const everybody = (): mongodash.ServeDashboardOptions => ({ authorize: () => ['view', 'payload', 'act'] });

  it('lets nobody in until it is told whom', async () => {
    expect((await get('/dashboard', () => ({}))).status).toBe(401);
  });

  it('serves the page and its data to those who are let in', async () => {
    expect((await get('/dashboard', everybody)).status).toBe(200);
    const overview = await get('/dashboard/api/overview', everybody);
    expect(overview.status).toBe(200);
  });

  it('leaves other paths to the application', async () => {
    expect(await (await get('/dashboards', everybody)).text()).toBe('not served');
    expect(await (await get('/ops', everybody)).text()).toBe('not served');
    const elsewhere = await get('/ops', () => ({ ...everybody(), basePath: '/ops' }));
    expect(elsewhere.status).toBe(200);
  });

  it('finds where Express has mounted it', async () => {
    const mounted = await get('/admin/tasks/', (request) => {
      Object.assign(request, { baseUrl: '/admin/tasks', originalUrl: request.url, url: '/' });
      return everybody();
    });
    expect(mounted.status).toBe(200);
  });
});
