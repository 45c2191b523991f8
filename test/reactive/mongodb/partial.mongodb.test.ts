import { startMongo } from '@tidemill/servers';
import { MongoClient } from 'mongodb';
import { expect, it } from 'vitest';
import { mongodb } from '../../../src/mongodb/index.js';
import { aMill, until } from '../../support/mills.js';

/** The server's own code for a statement that exceeded its maxTimeMS. */
const MAX_TIME_EXPIRED = 50;

it('a search for tasks that reached its time limit returns what it found with partial: true', async () => {
  await using server = await startMongo({ failPoints: true });
  const client = new MongoClient(server.uri.replace('/?', '/app?'));
  const worker = aMill(mongodb({ client }));
  for (const collection of ['slow', 'quick']) {
    await worker.reactiveTask({ task: collection, collection, debounce: 0, handler: () => undefined });
    await client.db().collection<{ _id: number }>(collection).insertOne({ _id: 1 });
  }
  await worker.start();
  await until('both ran', async () => (await worker.countReactiveTasks({ status: 'completed' })) === 2);
  await worker.stop();
  const manager = aMill(mongodb({ client }));
  const names = async (): Promise<unknown> => {
    const { items, ...rest } = await manager.getReactiveTasks({ hasError: false });
    return { ...rest, tasks: items.map(({ task }) => task).sort() };
  };
  await client.db('admin').command({
    configureFailPoint: 'failCommand',
    mode: { times: 1 },
    data: { failCommands: ['aggregate'], errorCode: MAX_TIME_EXPIRED, namespace: 'app.slow_tasks' },
  });
  expect(await names()).toEqual({ tasks: ['quick'], next: null, previous: null, partial: true });
  expect(await names()).toEqual({ tasks: ['quick', 'slow'], next: null, previous: null });
  await manager.stop();
  await client.close();
});
