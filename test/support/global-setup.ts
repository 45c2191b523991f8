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

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const [mongo, postgres] = await Promise.all([startMongo(), startPostgres()]);
  project.provide('mongoUri', mongo.uri);
  project.provide('postgresUrl', postgres.url);
  return async () => {
    await Promise.all([mongo.stop(), postgres.stop()]);
  };
}
