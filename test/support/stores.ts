import { randomBytes } from 'node:crypto';
import { MongoClient } from 'mongodb';
import { afterAll, describe, inject } from 'vitest';
import { memory } from '../../src/memory/index.js';
import { mongodb, type MongodbOptions, type MongodbStore } from '../../src/mongodb/index.js';
import type { Store } from '../../src/store/port.js';

/** The shared server with a database of this caller's own. */
export function freshUri(server: string = inject('mongoUri')): string {
  return server.replace('/?', `/test_${randomBytes(6).toString('hex')}?`);
}

function freshMongodb(options: Partial<MongodbOptions> = {}): MongodbStore {
  return mongodb({ uri: freshUri(), ...options });
}

export interface StoreCase {
  readonly name: 'memory' | 'mongodb';
  /** A store with nothing in it. */
  readonly open: () => Store;
}

const stores: readonly StoreCase[] = [
  { name: 'memory', open: () => memory() },
  { name: 'mongodb', open: () => freshMongodb() },
];

/** Runs the same facts on every store. */
export function eachStore(what: string, facts: (store: StoreCase) => void): void {
  for (const store of stores) describe(`${what} (${store.name})`, () => facts(store));
}

/** A client for looking at a test's own database. */
export function rawClient(uri: string): MongoClient {
  const client = new MongoClient(uri);
  afterAll(() => client.close());
  return client;
}
