import { PGlite } from '@electric-sql/pglite';
import { systemClock, within } from '../core/clock.js';
import { StoreError, TidemillError } from '../core/errors.js';
import { CallContext } from '../core/call-context.js';
import type { Driver, Queryable } from '../sql/connection/driver.js';
import { shareFolder, takeFolder } from './folder.js';
import { PrivateFolder } from './private-files.js';

interface PGliteTransaction extends Queryable {
  readonly closed: boolean;
}

/** The part of a PGlite that the store uses. */
export interface EmbeddedDatabase extends Queryable {
  transaction<T>(work: (transaction: PGliteTransaction) => Promise<T>): Promise<T | undefined>;
  listen(channel: string, callback: (payload: string) => void): Promise<() => Promise<void>>;
  readonly waitReady?: Promise<unknown>;
  readonly dataDir?: string | undefined;
}

const ANSWERS_WITHIN_MS = 5_000;

/** A query waits for open transactions only. If the caller is inside one, the query would wait for itself. */
async function untilFree(database: EmbeddedDatabase): Promise<void> {
  await database.waitReady;
  const asked = database.query('select 1');
  if (!(await within(systemClock, ANSWERS_WITHIN_MS, asked))) throw insideOwn();
  await asked;
}

const insideOwn = (): StoreError =>
  new StoreError(
    'The store cannot be opened while a transaction of your own is open on this PGlite. If this call is inside that ' +
      'transaction, make one before it, such as `mill.start()` or `mill.jobs.count()`, so that the store is already open.',
    { transient: true },
  );

/** A driver on the user's own PGlite, which they may be using at this moment. */
export async function given(database: EmbeddedDatabase): Promise<Driver> {
  const folder = folderOf(database);
  const release = folder === undefined ? undefined : await shareFolder(database, folder);
  try {
    await untilFree(database);
  } catch (error) {
    await release?.();
    throw error;
  }
  return { ...borrowed(database), close: async () => release?.() };
}

/** The folder of a PGlite's data; undefined if they are in memory, or in a place that only PGlite knows. */
function folderOf({ dataDir = '' }: EmbeddedDatabase): string | undefined {
  const path = dataDir.replace(/^file:\/\//u, '');
  return path === '' || path.includes('://') ? undefined : path;
}

/**
 * Yields one turn of the event loop. A query runs inside this process, and its result needs no turn. When queries
 * follow each other, timers that fall due keep the current turn from ending, and sockets and immediates wait for many
 * seconds.
 */
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** A driver that does not close the database. */
export function borrowed(database: EmbeddedDatabase): Driver {
  /** The transaction that the running code is inside. */
  const inside = new CallContext<PGliteTransaction>();
  const checkOutside = (): void => {
    if (inside.value?.closed !== false) return;
    throw new TidemillError(
      'INSIDE_TRANSACTION',
      'Pass `transaction` to every call inside withTransaction: the embedded database has one connection, so ' +
        'a call without it would wait for the transaction, which waits for the call.',
    );
  };
  const query: Queryable['query'] = async (text, values) => {
    checkOutside();
    return database.query(text, values).finally(turn);
  };
  const transaction: Driver['transaction'] = async (work) => {
    checkOutside();
    const answer = database.transaction((handle) => inside.run(handle, () => work(handle)));
    return (await answer.finally(turn)) as Awaited<ReturnType<typeof work>>;
  };
  return {
    checkOutside,
    query,
    prepared: { query },
    unhurried: { query },
    vital: () => ({ query }),
    transaction,
    lend: (work) => transaction(work),
    limited: (handle) => handle,
    listen: async (channel, handlers) => {
      const stop = await database.listen(channel, (payload) => handlers.message(payload));
      return { close: () => stop() };
    },
    close: () => Promise.resolve(),
  };
}

export async function inMemory(): Promise<Driver> {
  return owned(await PGlite.create(), () => Promise.resolve());
}

const openIn = (path: string): Promise<PGlite> => PGlite.create({ fs: new PrivateFolder(path) });

export async function inFolder(dir: string): Promise<Driver> {
  const folder = await takeFolder(dir, async (path) => (await openIn(path)).close());
  try {
    return owned(await openIn(folder.path), () => folder.release());
  } catch (error) {
    await folder.release();
    throw error;
  }
}

const owned = (database: PGlite, released: () => Promise<void>): Driver => ({
  ...borrowed(database),
  close: async () => {
    await database.close();
    await released();
  },
});
