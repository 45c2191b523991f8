import { execFile } from 'node:child_process';
import { resolve } from 'node:path';
import { promisify } from 'node:util';
import { startMongo, startPostgres } from '@tidemill/servers';
import type { TestProject } from 'vitest/node';

declare module 'vitest' {
  interface ProvidedContext {
    /** A one-node replica set that all test files share; each takes a database of its own. */
    mongoUri: string;
    /** A PostgreSQL that all test files share; each store takes a schema of its own. */
    postgresUrl: string;
  }
}

const root = resolve(import.meta.dirname, '../..');

/** The dashboard's page as it is now, in dist/dashboard, where the server finds it. */
async function buildPage(): Promise<void> {
  // As it is shipped: the test runner's own NODE_ENV would make another page.
  const env = { ...process.env, NODE_ENV: 'production' };
  await promisify(execFile)(resolve(root, 'node_modules/.bin/vite'), ['build', 'dashboard'], {
    cwd: root,
    env,
  });
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const [mongo, postgres] = await Promise.all([startMongo(), startPostgres(), buildPage()]);
  project.provide('mongoUri', mongo.uri);
  project.provide('postgresUrl', postgres.url);
  return async () => {
    await Promise.all([mongo.stop(), postgres.stop()]);
  };
}
