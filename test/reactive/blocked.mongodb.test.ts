import { MongoClient } from 'mongodb';
import { afterAll, describe, expect, it } from 'vitest';
import { mongodb } from '../../src/mongodb/index.js';
import { aMill, gate, until } from '../support/mills.js';
import { freshUri } from '../support/stores.js';

interface Doc {
  readonly _id: number;
  readonly n: number;
}

const clients: MongoClient[] = [];
afterAll(() => Promise.all(clients.map((client) => client.close())));

describe("a user's open transaction on one task", () => {
  it('holds up neither other documents nor the change of its own, which is planned when it ends', async () => {
    const client = new MongoClient(freshUri());
    clients.push(client);
    const orders = client.db().collection<Doc>('orders');
    const users = client.db().collection<Doc>('users');
    const mill = aMill(mongodb({ client }));
    const handled: string[] = [];
    const [marked, commit] = [gate(), gate()];
    await mill.reactiveTask<Doc>({
      task: 'order',
      collection: 'orders',
      debounce: 0,
      handler: async ({ docId, getDocument, markCompleted }) => {
        const { n } = await getDocument();
        if (docId === 1 && n === 1) {
          await client.withSession((session) =>
            session.withTransaction(async () => {
              await markCompleted({ session });
              marked.open();
              await commit.promise;
            }),
          );
        }
        handled.push(`order ${String(docId)} ${String(n)}`);
      },
    });
    await mill.reactiveTask<Doc>({
      task: 'user',
      collection: 'users',
      debounce: 0,
      handler: ({ docId }) => handled.push(`user ${String(docId)}`),
    });
    await mill.start();
    await orders.insertOne({ _id: 1, n: 1 });
    await marked.promise;
    await orders.updateOne({ _id: 1 }, { $set: { n: 2 } });
    await orders.insertOne({ _id: 2, n: 1 });
    await users.insertOne({ _id: 3, n: 1 });
    // The transaction is still open: only what it holds waits.
    await until('others are handled', () => handled.includes('order 2 1') && handled.includes('user 3'));
    expect(handled).not.toContain('order 1 1');
    const planner = await client.db().collection('_tidemill_globals').findOne({ kind: 'planner' });
    await users.insertOne({ _id: 4, n: 1 });
    await until('it goes on', () => handled.includes('user 4'));
    // A successor would meet the change again: the resume point has not passed it.
    const later = await client.db().collection('_tidemill_globals').findOne({ kind: 'planner' });
    expect(later?.['tokens']).toEqual(planner?.['tokens']);
    commit.open();
    await until('the change is handled', () => handled.includes('order 1 2'));
    await until('the resume point moves on', async () => {
      const now = await client.db().collection('_tidemill_globals').findOne({ kind: 'planner' });
      return JSON.stringify(now?.['tokens']) !== JSON.stringify(planner?.['tokens']);
    });
    expect(handled.filter((one) => one === 'order 1 1')).toHaveLength(1);
  }, 60_000);
});
