/** The MongoDB store: replica sets and sharded clusters, MongoDB 6.0 or newer. */
import { MongodbStore, type MongodbOptions } from './store.js';

export function mongodb(options: MongodbOptions): MongodbStore {
  return new MongodbStore(options);
}

export { MongodbStore, type MongodbOptions };
