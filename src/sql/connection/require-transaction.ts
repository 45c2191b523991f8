import { OptionError } from '../../core/errors.js';
import type { Sql } from './connection.js';
import type { Queryable } from './driver.js';
import { sqlState } from './errors.js';

const NO_TRANSACTION = '25P01';

/** node-postgres knows by the server's last answer whether a transaction is open; older versions, and adapters, do not tell. */
function isKnownToHaveBegun(on: Queryable): boolean {
  const { getTransactionStatus: ask } = on as { getTransactionStatus?: () => unknown };
  // Another answer may be out of date: BEGIN may have been sent and not answered yet.
  return typeof ask === 'function' && ask.call(on) === 'T';
}

/**
 * Refuses a client on which nobody called BEGIN: what is written there is committed at once, whatever becomes of the rest. Who
 * does not know it asks by a lock that hinders nobody, and that the server gives to transactions only.
 */
export async function requireTransaction(sql: Sql, on: Queryable): Promise<void> {
  if (sql.ownTransactions.has(on) || isKnownToHaveBegun(on)) return;
  try {
    await sql.driver.limited(on).query(`lock table ${sql.names.jobs} in access share mode`);
  } catch (error) {
    if (sqlState(error) !== NO_TRANSACTION) throw error;
    throw new OptionError(
      'transaction: this client has no open transaction, so the completion would be committed at once. Call BEGIN on it ' +
        'first, or use `mill.withTransaction`.',
      { cause: error },
    );
  }
}
