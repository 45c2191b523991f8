import type { ClientSession, MongoClient } from 'mongodb';
import { MemoryTransaction } from '../../../src/memory/index.js';
import type { Queryable } from '../../../src/postgres/index.js';
import { insertOther } from './memory-database.js';

/** Writes to `others` inside a transaction of any store. */
export async function effect(transaction: unknown, _id: number): Promise<void> {
  if (transaction instanceof MemoryTransaction) insertOther(transaction, _id);
  else if (isQueryable(transaction)) await transaction.query('insert into others (_id) values ($1)', [_id]);
  else {
    // The driver's types hide it.
    const session = transaction as ClientSession & { readonly client: MongoClient };
    await session.client.db().collection<{ _id: number }>('others').insertOne({ _id }, { session });
  }
}

const isQueryable = (handle: unknown): handle is Queryable =>
  typeof handle === 'object' && handle !== null && 'query' in handle;
