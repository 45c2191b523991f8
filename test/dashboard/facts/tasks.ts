import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Tidemill } from '../../../src/index.js';
import { mongodb } from '../../../src/mongodb/index.js';
import { until } from '../../support/mills.js';
import { freshUri, rawClient } from '../../support/stores.js';
import type { BrowserFixture } from '../browser-fixture.js';
import { serve, type Served } from '../sample-mill.js';
import { rows, type Visit } from '../visit.js';

interface Order {
  readonly _id: string;
  readonly status: string;
  readonly total: number;
}

/** Reactive tasks need a database with changes to follow. */
export function taskFacts(fixture: BrowserFixture): void {
  describe('reactive tasks on the page', () => {
    const uri = freshUri();
    const client = rawClient(uri);
    let mill: Tidemill;
    let served: Served;
    let broken = true;

    beforeAll(async () => {
      mill = new Tidemill({ store: mongodb({ uri }), logger: false });
      await mill.reactiveTask<Order>({
        task: 'sync-order',
        collection: 'orders',
        filter: { status: 'paid' },
        watchProjection: { total: 1 },
        retryPolicy: { type: 'fixed', interval: '1s', maxAttempts: 1 },
        handler: async (context) => {
          const order = await context.getDocument();
          if (broken && order.total === 13) throw new Error(`The ledger refused order ${order._id}`);
        },
      });
      await client.db().createCollection('orders');
      await mill.start();
      served = await serve(mill);
      await client
        .db()
        .collection<Order>('orders')
        .insertMany([
          { _id: 'order-1', status: 'paid', total: 42 },
          { _id: 'order-2', status: 'paid', total: 13 },
        ]);
      await until(
        'both were handled',
        async () => (await mill.tasks.count({ status: ['completed', 'failed'] })) === 2,
      );
    });

    afterAll(async () => {
      await served[Symbol.asyncDispose]();
      await mill.stop({ timeout: 0 });
      await client.db().dropDatabase();
    });

    const visit = (): Promise<Visit> => fixture.visit({ url: served.url });

    it('finds a task by a field of its document, and shows the document', async () => {
      await using viewer = await visit();
      await viewer.go('work?kind=tasks&field=total:42');
      await until('one is found', async () => (await rows(viewer)) === 1);
      await viewer.page.getByRole('link', { name: /sync-order/u }).click();
      await viewer.sees('Source document');
      await viewer.sees('in orders, as it is now');
      await viewer.sees('"order-1"');
      expect(await viewer.barriers()).toEqual([]);
    });

    it('retries a group of failed tasks once the cause is fixed', async () => {
      await using viewer = await visit();
      await viewer.go('failures?kind=tasks');
      await viewer.sees(/The ledger refused order/u);
      broken = false;
      await viewer.button(/^Retry all of sync-order/u);
      await viewer.button('Retry 1');
      await viewer.sees(/Done: 1 of 1 tasks/u);
      await until('it is completed', async () => (await mill.tasks.count({ status: 'completed' })) === 2);
    });

    it("shows the planner's leader, and reconciles, pauses and resumes a task by name", async () => {
      await using viewer = await visit();
      await viewer.go('');
      await viewer.sees('Planner');
      await viewer.page.getByText(mill.instanceId).first().waitFor();
      await viewer.button('Reconcile sync-order');
      await viewer.sees('The planner checks every document again.');
      await viewer.button('Pause sync-order');
      await viewer.page.getByRole('button', { name: 'Resume sync-order' }).waitFor();
      await client.db().collection<Order>('orders').insertOne({ _id: 'order-3', status: 'paid', total: 7 });
      await until('it is planned', async () => (await mill.tasks.count({ status: 'pending' })) === 1);
      await viewer.go('work?kind=tasks&status=pending');
      await viewer.page.getByRole('link', { name: /sync-order/u }).click();
      await viewer.sees('Why is this not running?');
      await viewer.sees(/paused/u);
      await viewer.go('');
      await viewer.button('Resume sync-order');
      await until('it is completed', async () => (await mill.tasks.count({ status: 'completed' })) === 3);
    });
  });
}
