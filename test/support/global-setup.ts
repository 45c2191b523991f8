import { startMongo } from '@tidemill/servers';
import type { TestProject } from 'vitest/node';

declare module 'vitest' {
  interface ProvidedContext {
    /** A one-node replica set that all test files share; each takes a database of its own. */
    mongoUri: string;
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const server = await startMongo();
  project.provide('mongoUri', server.uri);
  return () => server.stop();
}
