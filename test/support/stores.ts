import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdir, readFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { PGlite } from '@electric-sql/pglite';
import { MongoClient } from 'mongodb';
import pg from 'pg';
import { afterAll, beforeAll, describe, inject, it } from 'vitest';
import { embedded, type EmbeddedOptions, type EmbeddedStore } from '../../src/embedded/index.js';
import { memory } from '../../src/memory/index.js';
import { mongodb, type MongodbOptions, type MongodbStore } from '../../src/mongodb/index.js';
import { postgres, type PostgresOptions, type PostgresStore } from '../../src/postgres/index.js';
import type { Store } from '../../src/store/port.js';
import { registerFacts, type Chapter } from '../../src/testing/conformance/chapters.js';
import { runsOn } from './embedded-suites.js';
import { postgresScript, takeSchema } from './rights.js';

const unique = (): string => `test_${randomBytes(6).toString('hex')}`;

/** The shared server with a new database. */
export function freshUri(server: string = inject('mongoUri')): string {
  return server.replace('/?', `/${unique()}?`);
}

export function freshMongodb(options: Partial<MongodbOptions> = {}): MongodbStore {
  return mongodb({ uri: freshUri(), ...options });
}

/** A name that no other store has. */
export const freshSchema = (): string =>
  inject('schemas') === '' ? unique() : takeSchema(inject('schemas'));

/** Lets stores use a table as privileges/ has it: 2 for reactive tasks, 3 for document schedules. */
export async function grantTable(
  ask: (text: string) => Promise<unknown>,
  part: 2 | 3,
  tables: string,
  name: string,
): Promise<void> {
  if (inject('schemas') === '') return;
  // One at a time: PostgreSQL refuses a grant while another one changes the same schema.
  const inTurn = 'select pg_advisory_xact_lock(7364);';
  await ask(inTurn + postgresScript(part, { tables, watched: name, scheduled: name }));
}

/** The shared server with a new schema for this store. */
export function freshPostgres(options: Partial<PostgresOptions> = {}): PostgresStore {
  return postgres({
    ...(options.pool === undefined ? { url: inject('postgresStoreUrl'), connections: 4 } : {}),
    schema: freshSchema(),
    ...options,
  });
}

let shared: PGlite | undefined;

/** Call this where tests are described: starts the one embedded database of this file. */
export function useEmbedded(): void {
  beforeAll(async () => {
    shared ??= await newEmbedded();
  });
}

/** An empty embedded database. */
export const newEmbedded = async (): Promise<PGlite> =>
  PGlite.create({ loadDataDir: new Blob([await readFile(inject('embeddedDump'))]) });

/**
 * Closes it if another file of this process has opened it; who uses it next opens another. Its timers follow
 * `Date.now()`, which the simulation replaces: they would fire each millisecond.
 */
export async function closeEmbedded(): Promise<void> {
  await shared?.close();
  shared = undefined;
}

/** Puts an empty embedded database into a folder, for stores that open it. */
export async function fillEmbeddedFolder(dir: string): Promise<void> {
  await mkdir(dir, { recursive: true, mode: 0o700 });
  await promisify(execFile)('tar', ['-xf', inject('embeddedDump'), '-C', dir]);
}

/** The embedded database of this file with a new schema for this store. */
export function freshEmbedded(options: Partial<EmbeddedOptions> = {}): EmbeddedStore {
  return embedded({ database: sharedEmbedded(), schema: unique(), ...options });
}

export function sharedEmbedded(): PGlite {
  if (shared === undefined) throw new Error('call useEmbedded() where the tests are described');
  return shared;
}

export interface StoreCase {
  readonly name: 'memory' | 'mongodb' | 'postgres' | 'embedded';
  /** An empty store. */
  readonly open: () => Store;
}

const stores: readonly (StoreCase & { readonly prepare?: () => void })[] = [
  { name: 'memory', open: () => memory() },
  { name: 'mongodb', open: () => freshMongodb() },
  { name: 'postgres', open: () => freshPostgres() },
  { name: 'embedded', open: () => freshEmbedded(), prepare: useEmbedded },
];

/** Runs the same tests on every store; on the embedded one only if they concern it. */
export function eachStore(what: string, facts: (store: StoreCase) => void): void {
  for (const store of stores) if (runsOn(store.name, what)) describeOn(store, what, facts);
}

/** Runs a chapter of the public conformance suite on every store; they do without nothing. */
export function eachStoreProves(chapter: Chapter): void {
  for (const store of stores)
    describeOn(store, chapter.title, ({ open }) => registerFacts(chapter, { it, open }));
}

function describeOn(store: (typeof stores)[number], what: string, facts: (store: StoreCase) => void): void {
  describe(`${what} (${store.name})`, () => {
    store.prepare?.();
    facts(store);
  });
}

/** The address of a test's own database, with every right. */
export function asAdmin(uri: string): string {
  const [, admin] = /\/\/(?<user>[^@/]*)@/u.exec(inject('mongoAdminUri')) ?? [];
  return admin === undefined ? uri : uri.replace(/\/\/[^@/]*@/u, `//${admin}@`);
}

/** A client for inspecting a test's own database. */
export function rawClient(uri: string): MongoClient {
  const client = new MongoClient(asAdmin(uri));
  afterAll(() => client.close());
  return client;
}

/** A pool for inspecting what a test has written to PostgreSQL. */
export function rawPool(options: pg.PoolConfig = {}): pg.Pool {
  const pool = new pg.Pool({ connectionString: inject('postgresUrl'), max: 4, ...options });
  // Tests end connections on purpose.
  pool.on('error', () => undefined);
  afterAll(() => pool.end());
  return pool;
}
