import { describe, expect, it } from 'vitest';
import type { Task, Tidemill } from '../../../src/index.js';
import type { MongodbStore } from '../../../src/mongodb/index.js';
import { until } from '../../support/mills.js';
import { thingsFixture, type Row, type ThingsFixture } from '../things-fixture.js';

const AT_ONCE = { collection: 'things', debounce: 0 } as const;

const idsOf = (items: readonly Task[]): string[] =>
  items.map(({ task, sourceDocId }) => `${task}:${String(sourceDocId)}`).sort();

describe('sourceDocFilter on a source with a collation', () => {
  const COLLATION = { locale: 'en', strength: 2 } as const;

  /** A task for each person, run by a mill of its own, and a mill that only manages. */
  async function people(
    rows: readonly Row[],
  ): Promise<{ manager: Tidemill<MongodbStore>; ran: unknown[]; shop: ThingsFixture }> {
    const shop = thingsFixture();
    await shop.db.createCollection('things', { collation: COLLATION });
    await shop.docs.insertMany([...rows]);
    const mill = shop.mill();
    const ran: unknown[] = [];
    await mill.reactiveTask({ ...AT_ONCE, task: 't', handler: ({ docId }) => ran.push(docId) });
    await mill.start();
    await until(
      'all are completed',
      async () => (await shop.stored.countDocuments({ status: 'completed' })) === rows.length,
    );
    ran.length = 0;
    return { manager: shop.mill(), ran, shop };
  }

  it("sourceDocFilter uses the source's collation for lists, counts and retries", async () => {
    const { manager, ran } = await people([
      { _id: 'A', name: 'ADA' },
      { _id: 'b', name: 'ada' },
      { _id: 'c', name: 'bob' },
    ]);
    const filter = { sourceDocFilter: { name: 'ada' } };
    expect(idsOf((await manager.getReactiveTasks(filter)).items)).toEqual(['t:A', 't:b']);
    expect(await manager.countReactiveTasks(filter)).toBe(2);
    expect(await manager.retryReactiveTasks(filter)).toEqual({ modifiedCount: 2 });
    await until('both ran', () => ran.length === 2);
    expect([...ran].sort()).toEqual(['A', 'b']);
  });

  it('finds a task by an id in any case, also after its document is gone', async () => {
    const { manager, shop } = await people([{ _id: 'Order-1' }, { _id: 'order-2' }]);
    for (const id of ['Order-1', 'ORDER-1'])
      expect(idsOf((await manager.getReactiveTasks({ sourceDocFilter: { _id: id } })).items)).toEqual([
        't:Order-1',
      ]);
    expect((await manager.tasks.get('t', 'order-1'))?.sourceDocId).toBe('Order-1');
    await shop.docs.deleteOne({ _id: 'Order-1' });
    expect((await manager.tasks.get('t', 'Order-1'))?.sourceDocId).toBe('Order-1');
    expect(await manager.countReactiveTasks({ sourceDocFilter: { _id: /^order/u } })).toBe(1);
  });

  it('pages forward over sparse matches with a collation', async () => {
    const rows = Array.from({ length: 300 }, (_, at) => ({
      _id: at,
      name: at % 40 === 7 ? 'Ada' : 'bob',
    }));
    const { manager } = await people(rows);
    const filter = { sourceDocFilter: { name: 'ADA' } };
    const pages: string[][] = [];
    let cursor: string | null = null;
    do {
      const page = await manager.getReactiveTasks(filter, {
        limit: 3,
        total: true,
        ...(cursor === null ? {} : { cursor }),
      });
      expect(page.total).toBe(8);
      pages.push(page.items.map(({ sourceDocId }) => String(sourceDocId)));
      cursor = page.next;
    } while (cursor !== null);
    expect(pages.map((page) => page.length)).toEqual([3, 3, 2]);
    expect(new Set(pages.flat()).size).toBe(8);
  });
});
