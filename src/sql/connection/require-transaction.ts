import { OptionError } from '../../core/errors.js';
import type { Sql } from './connection.js';
import type { Queryable } from './driver.js';
import { sqlState } from './errors.js';

const NO_TRANSACTION = '25P01';

/**
 * node-postgres knows from the server's last response whether a transaction is open: `T`, or `I` if none is. `I` may be
 * out of date, since BEGIN may have been sent and not answered yet. Older versions, and adapters, cannot tell.
 */
function statusOf(on: Queryable): unknown {
  const { getTransactionStatus: ask } = on as { getTransactionStatus?: () => unknown };
  return typeof ask === 'function' ? ask.call(on) : undefined;
}

/**
 * Rejects a client on which BEGIN was not called: its writes would commit at once, whatever becomes of the rest. If the
 * driver cannot tell, probe with `LOCK … ACCESS SHARE`: it fails outside a transaction and blocks no ordinary
 * statement.
 */
export async function requireTransaction(sql: Sql, on: Queryable): Promise<void> {
  if (sql.ownTransactions.has(on) || statusOf(on) === 'T') return;
  try {
    await sql.driver.limited(on).query(`lock table ${sql.names.jobs} in access share mode`);
  } catch (error) {
    if (sqlState(error) !== NO_TRANSACTION) throw error;
    throw new OptionError(
      'transaction: this client has no open transaction, so its writes would be committed at once. Call BEGIN on it ' +
        'first, or use `mill.withTransaction`.',
      { cause: error },
    );
  }
}

/**
 * The same for an enqueue, which is not worth a probe if the driver cannot tell: it rejects a client only if the driver
 * reports that no transaction is open.
 */
export async function refuseWithoutTransaction(sql: Sql, on: Queryable): Promise<void> {
  if (statusOf(on) === 'I') await requireTransaction(sql, on);
}
