/**
 * The MongoDB store: MongoDB 6.0 or newer, as a replica set or a sharded cluster. On a standalone server it works
 * without wake-ups, transactions and reactive tasks.
 */
import type { MongodbOptions } from './options.js';
import { MongodbStore } from './store.js';

export function mongodb(options: MongodbOptions): MongodbStore {
  return new MongodbStore(options);
}

export { MongodbStore, type MongodbOptions };
