import { describe, expect, it } from 'vitest';
import { testMill, type TestMill } from '../../src/testing/index.js';

interface Order {
  readonly _id?: string;
  readonly total: number;
  readonly status: string;
}

function aShop(options: Parameters<typeof testMill>[0] = {}) {
  const mill = testMill({ now: '2026-01-01T00:00:00Z', ...options });
  const orders = mill.store.collection<Order>('orders');
  const invoiced: unknown[] = [];
  const define = (more: object = {}): Promise<void> =>
    mill.reactiveTask<Order>({
      task: 'invoice',
      collection: 'orders',
      filter: { status: 'paid' },
      watchProjection: { status: 1, total: 1 },
      handler: async ({ docId, getDocument }) => {
        const { total } = await getDocument();
        invoiced.push([docId, total]);
      },
      ...more,
    });
  return { mill, orders, invoiced, define };
}

const stop = (mill: TestMill): Promise<void> => mill.stop({ timeout: 0 });

describe('reactive tasks of a test mill', () => {
  it('a test mill runs a task after the debounce when its document comes to match', async () => {
    const { mill, orders, invoiced, define } = aShop();
    await define();
    orders.insert({ _id: 'a', total: 5, status: 'paid' });
    orders.insert({ _id: 'b', total: 6, status: 'open' });
    await mill.drain();
    expect(invoiced).toEqual([]);
    expect(await mill.advance('1s')).toEqual({ completed: 1, failed: 0, retried: 0 });
    expect(invoiced).toEqual([['a', 5]]);
    orders.update('b', { status: 'paid' });
    await mill.drain({ scheduled: true });
    expect(invoiced).toEqual([
      ['a', 5],
      ['b', 6],
    ]);
  });

  it('a test mill runs a task at once without a debounce, and again when a watched field changes', async () => {
    const { mill, orders, invoiced, define } = aShop();
    await define({ debounce: 0 });
    orders.insert({ _id: 'a', total: 5, status: 'paid' });
    await mill.drain();
    orders.update('a', { note: 'nobody watches this' });
    await mill.drain();
    orders.update('a', { total: 7 });
    await mill.drain();
    expect(invoiced).toEqual([
      ['a', 5],
      ['a', 7],
    ]);
  });

  it("tasks of a test mill see a transaction's writes after its commit, and complete inside one", async () => {
    const { mill, orders } = aShop();
    const invoices = mill.store.collection('invoices');
    await mill.reactiveTask<Order>({
      task: 'invoice',
      collection: 'orders',
      debounce: 0,
      handler: ({ docId, markCompleted }) =>
        mill.withTransaction(async (transaction) => {
          invoices.insert({ _id: docId }, { transaction });
          await markCompleted({ transaction });
        }),
    });
    await mill.withTransaction(async (transaction) => {
      orders.insert({ _id: 'a', total: 5, status: 'paid' }, { transaction });
    });
    await mill.drain();
    expect(invoices.all()).toEqual([{ _id: 'a' }]);
    expect(await mill.tasks.get('invoice', 'a')).toMatchObject({ status: 'completed' });
  });

  it('a test mill retries tasks on its clock, and counts them', async () => {
    const { mill, orders } = aShop();
    let tries = 0;
    await mill.reactiveTask({
      task: 'flaky',
      collection: 'orders',
      debounce: 0,
      retryPolicy: { type: 'fixed', interval: '1m', maxAttempts: 3 },
      handler: () => {
        tries += 1;
        if (tries < 3) throw new Error('not yet');
      },
    });
    orders.insert({ total: 1, status: 'new' });
    expect(await mill.drain()).toEqual({ completed: 0, failed: 0, retried: 1 });
    expect(await mill.drain({ scheduled: true })).toEqual({ completed: 1, failed: 0, retried: 1 });
  });

  it('a started test mill runs tasks by itself, driven by its clock', async () => {
    const { mill, orders, invoiced, define } = aShop();
    await define();
    await mill.start();
    orders.insert({ _id: 'a', total: 5, status: 'paid' });
    await mill.clock.advance('10s');
    expect(invoiced).toEqual([['a', 5]]);
    await stop(mill);
  });

  it('a test mill rejects filters that memory cannot evaluate, and another database', () => {
    const { define } = aShop();
    expect(() => define({ filter: { status: { $regex: '^p' } } })).toThrow(
      'does not support the condition "$regex"',
    );
    expect(() => define({ database: 'other' })).toThrow('has one database only');
    expect(() => define({ watchProjection: { status: 0 } })).toThrow('must not exclude "status"');
  });
});
