import { ServerError, startMongo, startPostgres, type Stoppable } from '@tidemill/servers';
import { databaseAt, type Database } from './databases.js';

/** Where the demo runs. */
export interface Place {
  readonly database: Database;
  readonly url: string;
  /** A database or schema of the demo's own, so that nothing of yours is touched. */
  readonly space: string;
  /** Takes away what the demo made; a folder that you named stays, without the demo's tables. */
  leave(): Promise<unknown>;
}

/** What `--store` takes. */
export const CHOICES =
  'embedded (the default), postgres, mongodb, memory, or a URL: postgres://…, mongodb://…, file:./folder';

/** How to get to the chosen place; undefined where there is no such one. */
export function placeFor(choice: string): (() => Promise<Place>) | undefined {
  if (choice === 'mongodb') return async () => onServer(await startMongo());
  if (choice === 'postgres') return async () => onServer(await startPostgres());
  const url = choice === 'embedded' || choice === 'memory' ? `${choice}:` : choice;
  const database = databaseAt(url);
  return database && (() => at(database, url));
}

/** A server that ends with the demo. */
async function onServer(server: Stoppable & ({ uri: string } | { url: string })): Promise<Place> {
  const url = 'uri' in server ? server.uri : server.url;
  try {
    const place = await at(databaseAt(url)!, url);
    return { ...place, leave: () => place.leave().finally(() => server.stop()) };
  } catch (error) {
    await server.stop();
    throw error;
  }
}

async function at(database: Database, url: string): Promise<Place> {
  await database.reach(url).catch((cause: unknown) => {
    throw new ServerError(`${database.title} does not answer.`, {
      why: cause instanceof Error ? cause.message : String(cause),
      fix: 'start the server that the URL names, or choose another store with --store',
      cause,
    });
  });
  const space = `tidemill_demo_${process.pid}`;
  return { database, url, space, leave: () => database.drop(url, space) };
}
