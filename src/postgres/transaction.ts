import { StoreError, TidemillError } from '../core/errors.js';
import type { Queryable } from '../sql/driver.js';
import type { PostgresClient } from './client.js';
import type { Connections } from './connections.js';
import { answered, SilentError } from './silence.js';
import type { Use } from './turns.js';

/** A connection on which even this is not answered is given up. */
const ROLLBACK_MS = 5_000;

/**
 * A transaction at READ COMMITTED. Statements of the store's own have the limit; a caller gets the client itself, and its statements
 * take as long as they take.
 */
export function inTransaction<T>(
  connections: Connections,
  use: Use,
  work: (transaction: Queryable) => Promise<T>,
  limitMs: number,
): Promise<T> {
  return connections.hold(use, async (client) => {
    const limited: Queryable = { query: (text, values) => answered(client.query(text, values), limitMs) };
    try {
      await limited.query('begin isolation level read committed');
      const answer = await work(use === 'own' ? limited : client);
      await commit(limited);
      return { broken: false, end: () => answer };
    } catch (error) {
      const broken = error instanceof SilentError || !(await isRolledBack(client));
      return { broken, end: () => thrown(error) };
    }
  });
}

function thrown(error: unknown): never {
  if (!(error instanceof SilentError)) throw error;
  throw new StoreError(`${error.message}. Whether the transaction was committed is not known.`, {
    cause: error,
    transient: true,
    outcomeUnknown: true,
  });
}

const isRolledBack = (client: PostgresClient): Promise<boolean> =>
  answered(client.query('rollback'), ROLLBACK_MS).then(
    () => true,
    () => false,
  );

/** A transaction in which a statement has failed answers a commit with a rollback, and no error. */
async function commit(on: Queryable): Promise<void> {
  const { command } = (await on.query('commit')) as { readonly command?: string };
  if (command === 'ROLLBACK')
    throw new TidemillError(
      'TRANSACTION_FAILED',
      'A statement of this transaction had failed, so nothing of it was written; let its error through.',
    );
}
