import { startMongo, type MongoServer } from '@tidemill/servers';
import { MongoClient, MongoServerError } from 'mongodb';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { StoreError } from '../../src/core/errors.js';
import { isTimeLimit } from '../../src/mongodb/errors.js';
import { mongodb } from '../../src/mongodb/index.js';
import { Majority } from '../../src/mongodb/majority.js';
import { leaseOf } from '../../src/store/port.js';
import type { TaskPlan } from '../../src/store/reactive/reactive.js';
import { Fixture } from '../reactive/fixture.js';
import { aClaim, aJob, anInstance, done, opened } from '../support/port.js';
import { freshUri } from '../support/stores.js';

const TIME_LIMIT = 50;
const timeLimit = (): MongoServerError =>
  new MongoServerError({ message: 'operation exceeded time limit', code: TIME_LIMIT });

/** A statement that takes `takesMs` by itself, and `lagMs` more until a majority has it. */
function aStatement(takesMs: number, lagMs: number) {
  const asked: string[] = [];
  const statement = (limit: { maxTimeMS: number; writeConcern?: object }): Promise<void> => {
    const alone = limit.writeConcern !== undefined;
    asked.push(`${alone ? 'alone' : 'majority'} ${String(limit.maxTimeMS)}`);
    return takesMs + (alone ? 0 : lagMs) > limit.maxTimeMS ? Promise.reject(timeLimit()) : Promise.resolve();
  };
  return { asked, statement };
}

describe('majority writes within a time limit', () => {
  it('sends a majority write once if the majority is prompt', async () => {
    const { asked, statement } = aStatement(10, 10);
    await new Majority().write(2_000, 15_000, statement);
    expect(asked).toEqual(['majority 2000']);
  });

  it('waits for a lagging majority and does not treat the write as blocked', async () => {
    const { asked, statement } = aStatement(10, 3_000);
    await new Majority().write(2_000, 15_000, statement);
    expect(asked).toEqual(['majority 2000', 'alone 2000', 'majority 15000']);
  });

  it('reports a write that takes too long by itself as blocked', async () => {
    const { statement } = aStatement(5_000, 0);
    const failed = await new Majority().write(2_000, 15_000, statement).catch((error: unknown) => error);
    expect(isTimeLimit(failed)).toBe(true);
  });

  it('reports a majority that lags for too long as a transient error', async () => {
    const { statement } = aStatement(10, 20_000);
    const failed = await new Majority().write(2_000, 15_000, statement).catch((error: unknown) => error);
    expect(failed).toBeInstanceOf(StoreError);
    expect(failed).toMatchObject({ transient: true, message: expect.stringContaining('lag') as string });
  });
});

describe('a MongoDB server whose majority lags', () => {
  let server: MongoServer;
  beforeAll(async () => {
    server = await startMongo({ failPoints: true });
  });
  afterAll(() => server.stop());

  const PLAN: TaskPlan = {
    task: 'task',
    source: { collection: 'docs' },
    debounce: { waitMs: 0, maxWaitMs: 0 },
    resetRetriesOnDataChange: true,
    cleanup: { deleteWhen: 'never', keepForMs: 0 },
    evolution: { handlerVersion: 1, onHandlerVersionChange: 'none', reconcileOnTriggerChange: true },
  };

  async function open() {
    const fixture = new Fixture(freshUri(server.uri));
    /** The next command of that kind is carried out, and its wait for the majority ends with the time limit. */
    const lag = (command: string): Promise<unknown> =>
      fixture.client.db('admin').command({
        configureFailPoint: 'failCommand',
        mode: { times: 1 },
        data: {
          failCommands: [command],
          writeConcernError: { code: TIME_LIMIT, errmsg: 'operation exceeded time limit' },
        },
      });
    return { fixture, lag, store: await opened(mongodb({ uri: fixture.uri })) };
  }

  it('planning blocks no document while the majority lags', async () => {
    const { fixture, lag, store } = await open();
    await store.reactive.prepare([PLAN]);
    await fixture.collection('docs').insertOne({ _id: 1 });
    await lag('aggregate');
    expect(await store.reactive.planning.plan(PLAN, [1], 15_000)).toEqual([]);
    expect(await fixture.task('docs', 1)).toMatchObject({ status: 'pending' });
  });

  it('jobs that a reclaimer hands on count as settled while the majority lags', async () => {
    const { lag, store } = await open();
    await store.jobs.insert([aJob({ id: store.jobs.newId() }), aJob({ id: store.jobs.newId() })]);
    const { jobs } = await store.jobs.claim(aClaim(anInstance()));
    await lag('update');
    const handedOn = jobs.map((job) => done(job, { status: 'pending', set: {}, by: 'reclaimer' }));
    expect(await store.jobs.settle(handedOn)).toEqual(['settled', 'settled']);
  });

  it('tasks that a reclaimer hands on count as settled while the majority lags', async () => {
    const { fixture, lag, store } = await open();
    await store.reactive.prepare([PLAN]);
    await fixture.collection('docs').insertOne({ _id: 1 });
    await store.reactive.planning.plan(PLAN, [1], 15_000);
    const tasks = store.reactive.tasks(() => new Map([[PLAN.task, PLAN]]));
    const { jobs } = await tasks.claim(aClaim(anInstance(), { names: [PLAN.task] }));
    expect(jobs).toHaveLength(1);
    await lag('update');
    const handedOn = jobs.map((task) => ({
      lease: leaseOf(task),
      name: PLAN.task,
      status: 'pending' as const,
      takeBack: false,
      deferred: false,
      skipped: false,
      resetRetries: false,
      historyLimit: 5,
      by: 'reclaimer' as const,
    }));
    expect(await tasks.settle(handedOn)).toEqual(['settled']);
  });

  it('progress and heartbeats do not wait for the majority', async () => {
    const { fixture, store: other } = await open();
    const client = new MongoClient(fixture.uri, { monitorCommands: true });
    const store = await opened(mongodb({ client }));
    await other.jobs.insert([aJob()]);
    const instance = anInstance();
    const { jobs } = await store.jobs.claim(aClaim(instance));
    const concerns: unknown[] = [];
    client.on('commandStarted', ({ command }) => concerns.push(command['writeConcern']));
    await store.jobs.note(jobs.map((job) => ({ lease: leaseOf(job), progress: { value: 1 } })));
    await store.jobs.heartbeat?.(instance, []);
    expect(concerns).toEqual([{ w: 1 }, { w: 1 }]);
    await client.close();
  });

  it.each([1, 2])(
    'renewals of document locks are confirmed while the majority lags (%i in a batch)',
    async (count) => {
      const { fixture, lag, store } = await open();
      const locked = new Date(Date.now() + 60_000);
      const until = new Date(Date.now() + 120_000);
      const ids = Array.from({ length: count }, (_none, at) => at);
      await fixture.collection('docs').insertMany(ids.map((id) => ({ _id: id, sleepUntil: locked })));
      const documents = store.documents({ collection: 'docs' });
      await lag(count === 1 ? 'update' : 'bulkWrite');
      const locks = ids.map((id) => ({ id, ifSleepUntil: locked }));
      const { signal } = new AbortController();
      expect(await documents.renew?.(locks, until, { signal, marks: false })).toEqual(ids.map(() => true));
      expect(await fixture.collection('docs').countDocuments({ sleepUntil: until })).toBe(count);
    },
  );
});
