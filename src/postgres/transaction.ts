import { StoreError, TidemillError } from '../core/errors.js';
import type { Queryable } from '../sql/connection/driver.js';
import type { PostgresClient } from './client.js';
import type { Connections } from './connections.js';
import { answered, SilentError } from './silence.js';
import type { Use } from './connection-turns.js';
import { secondsText } from '../core/text/seconds.js';

/** A connection that does not respond to a rollback within this time is given up. */
const ROLLBACK_MS = 5_000;

/**
 * Runs a transaction at READ COMMITTED. The store's own statements have the time limit; a caller gets the client
 * itself, whose statements have none.
 */
export function inTransaction<T>(
  connections: Connections,
  use: Use,
  work: (transaction: Queryable) => Promise<T>,
  limitMs: number,
): Promise<T> {
  return connections.hold(use, async (client) => {
    const limited = connections.limited(client, limitMs);
    let committing = false;
    try {
      await limited.query('begin isolation level read committed');
      const answer = await work(use === 'own' ? limited : client);
      checkAnswered(connections, client);
      committing = true;
      await commit(limited);
      return { broken: false, end: () => answer };
    } catch (error) {
      const broken = connections.silenceOf(client) !== undefined || !(await isRolledBack(client));
      const end = (): never => {
        throw told(error, committing);
      };
      return { broken, end };
    }
  });
}

/**
 * Limits the store's statements in a caller's transaction: on a client that was lent, or on one of the caller's own.
 */
export function limitedIn(connections: Connections, transaction: Queryable, limitMs: number): Queryable {
  const limited = connections.limited(transaction, limitMs);
  const query: Queryable['query'] = (text, values) =>
    limited.query(text, values).catch((error: unknown) => {
      const isForeign = connections.silenceOf(transaction as PostgresClient) === undefined;
      throw error instanceof SilentError && isForeign ? notOurs(error, limitMs) : told(error, false);
    });
  return { query };
}

const notOurs = (cause: SilentError, limitMs: number): StoreError =>
  new StoreError(
    `the database did not answer within ${secondsText(limitMs)}; roll back this transaction and close its client.`,
    { cause, transient: true },
  );

/** Refuses to commit after a statement that got no response, even if the caller has caught its error. */
function checkAnswered(connections: Connections, client: PostgresClient): void {
  const silence = connections.silenceOf(client);
  if (silence !== undefined) throw silence;
}

function told(error: unknown, committing: boolean): unknown {
  if (!(error instanceof SilentError)) return error;
  const end = committing
    ? 'Whether the transaction was committed is not known.'
    : 'Nothing of the transaction is committed.';
  const message = `${error.message}. ${end}`;
  return new StoreError(message, { cause: error, transient: true, outcomeUnknown: committing });
}

const isRolledBack = (client: PostgresClient): Promise<boolean> =>
  answered(client.query('rollback'), ROLLBACK_MS).then(
    () => true,
    () => false,
  );

/**
 * If a statement of the transaction has failed, the server answers the commit with a rollback, and without an error.
 */
async function commit(on: Queryable): Promise<void> {
  const { command } = (await on.query('commit')) as { readonly command?: string };
  if (command === 'ROLLBACK')
    throw new TidemillError(
      'TRANSACTION_FAILED',
      'A statement of this transaction failed and its error was caught, so nothing was written; let the error through.',
    );
}
