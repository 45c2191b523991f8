import { describe, expect, it } from 'vitest';
import { OptionError } from '../../src/index.js';
import { memory } from '../../src/memory/index.js';

interface Order {
  readonly _id?: string;
  readonly total: number;
  readonly paid?: boolean;
  readonly lines?: readonly { readonly sku: string }[];
}

const orders = (): ReturnType<typeof open> => open();
const open = () => memory().collection<Order>('orders');

describe('collections of the memory store', () => {
  it('keeps copies of documents, and finds them by id and by query', () => {
    const collection = orders();
    const kept = collection.insert({ total: 5, lines: [{ sku: 'tea' }] });
    collection.insert({ _id: 'b', total: 50, paid: true });
    expect(collection.get(kept._id)).toEqual(kept);
    expect(collection.get(kept._id)).not.toBe(collection.get(kept._id));
    expect(collection.find({ total: { $gte: 10 } }).map(({ _id }) => _id)).toEqual(['b']);
    expect(collection.find({ 'lines.sku': 'tea' })).toHaveLength(1);
    expect(collection.size).toBe(2);
  });

  it('updates and removes fields by path, and replaces and deletes documents', () => {
    const collection = orders();
    collection.insert({ _id: 'a', total: 5, paid: true });
    expect(collection.update('a', { total: 6, paid: undefined, 'address.city': 'Oslo' })).toBe(true);
    expect(collection.get('a')).toEqual({ _id: 'a', total: 6, address: { city: 'Oslo' } });
    expect(collection.replace({ _id: 'a', total: 7 })).toBe(true);
    expect(collection.get('a')).toEqual({ _id: 'a', total: 7 });
    expect(collection.delete('a')).toBe(true);
    expect(collection.all()).toEqual([]);
    expect([collection.update('a', { total: 1 }), collection.replace({ _id: 'a', total: 1 })]).toEqual([
      false,
      false,
    ]);
    expect(collection.delete('a')).toBe(false);
  });

  it('treats ids with equal values as the same id, whatever their type', () => {
    const store = memory();
    const collection = store.collection('things');
    for (const _id of [new Date(0), { tenant: 1, n: 2 }, [1, 2], 5n]) {
      collection.insert({ _id });
      expect(() => collection.insert({ _id: structuredClone(_id) })).toThrow('already');
      expect(collection.get(structuredClone(_id))).toEqual({ _id });
    }
  });

  it('applies writes of a transaction together, or not at all after a conflict', async () => {
    const store = memory();
    const collection = store.collection<Order>('orders');
    collection.insert({ _id: 'a', total: 1 });
    await store.transaction(async (transaction) => {
      collection.update('a', { total: 2 }, { transaction });
      collection.insert({ _id: 'b', total: 1 }, { transaction });
      expect(collection.all()).toEqual([{ _id: 'a', total: 1 }]);
    });
    expect(collection.all()).toEqual([
      { _id: 'a', total: 2 },
      { _id: 'b', total: 1 },
    ]);
    const overtaken = store.transaction(async (transaction) => {
      collection.delete('a', { transaction });
      collection.update('b', { total: 9 }, { transaction });
      collection.update('b', { total: 3 });
    });
    await expect(overtaken).rejects.toMatchObject({ code: 'TRANSACTION_CONFLICT' });
    expect(collection.get('a')).toBeDefined();
    expect(collection.get('b')).toMatchObject({ total: 3 });
  });

  it.each([
    [{ a: { $regex: 'x' } }, 'does not support the condition "$regex"'],
    [{ $where: 'true' }, 'does not support "$where" at the top of a query'],
    [{ a: /x/u }, 'compares with JSON values and Dates only'],
    [{ a: { $in: 5 } }, '$in takes a list, got 5'],
    [{ a: { $not: 5 } }, '$not takes conditions'],
    [{ $or: [] }, '$or takes a list of queries'],
    [{ $expr: { $toUpper: '$a' } }, 'does not support the operator "$toUpper"'],
    [{ $expr: '$$USER' }, 'does not support the variable "$$USER"'],
  ])('rejects a query that it cannot evaluate as MongoDB does: %j', (query, message) => {
    const find = (): unknown => orders().find(query);
    expect(find).toThrow(OptionError);
    expect(find).toThrow(message);
  });

  it('rejects a changed _id and a handle that is not a transaction', () => {
    const collection = orders();
    collection.insert({ _id: 'a', total: 1 });
    expect(() => collection.update('a', { _id: 'b' })).toThrow('_id cannot change');
    expect(() => collection.delete('a', { transaction: {} as never })).toThrow(
      'transaction must be the handle',
    );
    expect(() => collection.delete('a', { session: {} } as never)).toThrow('session');
  });
});
