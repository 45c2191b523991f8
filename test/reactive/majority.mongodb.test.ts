import { startMongo, type MongoServer } from '@tidemill/servers';
import { MongoServerError } from 'mongodb';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { StoreError } from '../../src/core/errors.js';
import { isTimeLimit } from '../../src/mongodb/errors.js';
import { mongodb } from '../../src/mongodb/index.js';
import { Majority } from '../../src/mongodb/reactive/majority.js';
import type { TaskPlan } from '../../src/store/reactive.js';
import { freshUri } from '../support/stores.js';
import { Plant } from './plant.js';

const TIME_LIMIT = 50;
const timeLimit = (): MongoServerError =>
  new MongoServerError({ message: 'operation exceeded time limit', code: TIME_LIMIT });

/** A statement that takes so long by itself, and so long until a majority has it. */
function aStatement(takesMs: number, lagMs: number) {
  const asked: string[] = [];
  const statement = (limit: { maxTimeMS: number; writeConcern?: object }): Promise<void> => {
    const alone = limit.writeConcern !== undefined;
    asked.push(`${alone ? 'alone' : 'majority'} ${String(limit.maxTimeMS)}`);
    return takesMs + (alone ? 0 : lagMs) > limit.maxTimeMS ? Promise.reject(timeLimit()) : Promise.resolve();
  };
  return { asked, statement };
}

describe('a write within a time limit', () => {
  it('is asked for once where the majority is prompt', async () => {
    const { asked, statement } = aStatement(10, 10);
    await new Majority().write(2_000, 15_000, statement);
    expect(asked).toEqual(['majority 2000']);
  });

  it('waits for a majority that lags, and is not taken for a blocked one', async () => {
    const { asked, statement } = aStatement(10, 3_000);
    await new Majority().write(2_000, 15_000, statement);
    expect(asked).toEqual(['majority 2000', 'alone 2000', 'majority 15000']);
  });

  it('is blocked where it takes too long by itself', async () => {
    const { statement } = aStatement(5_000, 0);
    const failed = await new Majority().write(2_000, 15_000, statement).catch((error: unknown) => error);
    expect(isTimeLimit(failed)).toBe(true);
  });

  it('may be tried again where the majority lags for too long', async () => {
    const { statement } = aStatement(10, 20_000);
    const failed = await new Majority().write(2_000, 15_000, statement).catch((error: unknown) => error);
    expect(failed).toBeInstanceOf(StoreError);
    expect(failed).toMatchObject({ transient: true, message: expect.stringContaining('lag') as string });
  });
});

describe('a server whose majority lags', () => {
  let server: MongoServer;
  beforeAll(async () => {
    server = await startMongo({ failPoints: true });
  }, 60_000);
  afterAll(() => server.stop());

  it('blocks no document: what was written counts once the majority has it', async () => {
    const plant = new Plant(freshUri(server.uri));
    const store = mongodb({ uri: plant.uri });
    const holder = {};
    await store.acquire(holder);
    try {
      const plan: TaskPlan = {
        task: 'task',
        source: { collection: 'docs' },
        debounce: { waitMs: 0, maxWaitMs: 0 },
        resetRetriesOnDataChange: true,
        cleanup: { deleteWhen: 'never', keepForMs: 0 },
        evolution: { handlerVersion: 1, onHandlerVersionChange: 'none', reconcileOnTriggerChange: true },
      };
      await store.reactive.prepare([plan]);
      await plant.collection('docs').insertOne({ _id: 1 });
      await plant.client.db('admin').command({
        configureFailPoint: 'failCommand',
        mode: { times: 1 },
        data: {
          failCommands: ['aggregate'],
          namespace: `${plant.db.databaseName}.docs`,
          writeConcernError: { code: TIME_LIMIT, errmsg: 'waiting for replication timed out' },
        },
      });
      expect(await store.reactive.planning.plan(plan, [1], 15_000)).toEqual([]);
      expect(await plant.task('docs', 1)).toMatchObject({ status: 'pending' });
    } finally {
      await store.release(holder);
    }
  });
});
