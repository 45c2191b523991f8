import { execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { PGlite } from '@electric-sql/pglite';
import { startMongo, startPostgres } from '@tidemill/servers';
import type { TestProject } from 'vitest/node';
import { prepareMongodb, preparePostgres } from './rights.js';

declare module 'vitest' {
  interface ProvidedContext {
    /** A one-node replica set that all test files share; each test takes its own database. */
    mongoUri: string;
    /** The same with every right, for tests that inspect or write an application's data. */
    mongoAdminUri: string;
    /** A PostgreSQL that all test files share, with every right; each store takes its own schema. */
    postgresUrl: string;
    /** The same, as stores connect to it. */
    postgresStoreUrl: string;
    /** A file with a new embedded database, to be loaded: creating one takes five times as long. */
    embeddedDump: string;
    /** With LEAST_RIGHTS: a folder with the names of schemas that exist for stores to take. Otherwise empty. */
    schemas: string;
    /** A folder that all test files of a run share; removed at its end. */
    scratch: string;
  }
}

const root = resolve(import.meta.dirname, '../..');

const changedAt = (path: string): number => statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0;

/** True if no file of the page, and no contract that it shares with its server, is newer than the built page. */
function pageIsUpToDate(): boolean {
  const builtAt = changedAt(resolve(root, 'dist/dashboard/index.html'));
  const files = readdirSync(resolve(root, 'dashboard'), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
  return [...files, resolve(root, 'src/dashboard/contract.ts')].every((file) => changedAt(file) < builtAt);
}

/** Builds the dashboard's page into dist/dashboard, where the server finds it, unless it is up to date. */
async function buildPage(): Promise<void> {
  if (pageIsUpToDate()) return;
  // As it is shipped: the test runner's own NODE_ENV would produce another page.
  const env = { ...process.env, NODE_ENV: 'production' };
  await promisify(execFile)(resolve(root, 'node_modules/.bin/vite'), ['build', 'dashboard'], {
    cwd: root,
    env,
  });
}

async function dumpEmbedded(file: string): Promise<void> {
  const database = await PGlite.create();
  const dump = await database.dumpDataDir('none');
  await writeFile(file, new Uint8Array(await dump.arrayBuffer()));
  await database.close();
}

/** With LEAST_RIGHTS in the environment, stores have the rights of privileges/ and no others. */
const LEAST = (process.env['LEAST_RIGHTS'] ?? '') !== '';

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const folder = mkdtempSync(join(tmpdir(), 'tidemill-test-'));
  const dump = join(folder, 'embedded.tar');
  const starting = [startMongo({ auth: LEAST }), startPostgres(), buildPage(), dumpEmbedded(dump)] as const;
  const [mongo, postgres] = await Promise.all(starting);
  const rights = LEAST ? await preparePostgres(postgres.url) : { url: postgres.url, schemas: '' };
  project.provide('mongoAdminUri', mongo.uri);
  project.provide('mongoUri', LEAST ? await prepareMongodb(mongo.uri) : mongo.uri);
  project.provide('postgresUrl', postgres.url);
  project.provide('postgresStoreUrl', rights.url);
  project.provide('schemas', rights.schemas);
  project.provide('embeddedDump', dump);
  project.provide('scratch', folder);
  return async () => {
    rmSync(folder, { recursive: true });
    if (LEAST) rmSync(rights.schemas, { recursive: true });
    await Promise.all([mongo.stop(), postgres.stop()]);
  };
}
