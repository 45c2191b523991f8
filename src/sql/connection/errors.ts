import { driverError, OptionError, reasonOf, TidemillError } from '../../core/errors.js';

/**
 * The SQLSTATE of an error, by which errors are classified here and nowhere else. Both drivers carry it as `code`.
 * System error codes such as EPIPE may have five letters as well, but no digit.
 */
export const sqlState = (error: unknown): string | undefined => {
  const code: unknown = typeof error === 'object' && error !== null ? Reflect.get(error, 'code') : undefined;
  return typeof code === 'string' && /^(?=.*\d)[0-9A-Z]{5}$/u.test(code) ? code : undefined;
};

/**
 * Errors that waiting may cure: a lost connection, a shortage of resources, a lock, an operator's intervention, a
 * cancelled statement. A server that is being promoted or restored is read-only for a while. XX000 comes from poolers
 * that cannot reach the server, and from extensions for anything, so a caller that asks about rows must not wait for it
 * forever.
 *
 * A configured limit that the statement itself exceeds (53400), a missing file (58P01) and damaged data (XX001, XX002)
 * are permanent.
 */
const TRANSIENT = /^(?:08|40|53(?!400)|55P03|57|58(?:000|030)|25006|25P0[34]|XX000)/u;
/** The connection, or the server behind it, is going down. This says nothing about the statement. */
const GONE = /^(?:08|57P)/u;
const LOCK_NOT_AVAILABLE = '55P03';
const QUERY_CANCELLED = '57014';
const UNIQUE_VIOLATION = '23505';
/** Values that are too long, too large or not valid in the server's encoding: it will never accept them. */
const UNSTORABLE = /^(?:22|54|42P22)/u;
/**
 * The part of `UNSTORABLE` that the values of an outcome themselves cause. The rest are rules of the database, which
 * its owner may fix.
 */
const TOO_MUCH = /^(?:54|22(?:001|003|008|021|P02|P05)|42P22)/u;
const AGAIN: ReadonlySet<string | undefined> = new Set(['40001', '40P01']);

export const isUnique = (error: unknown): boolean => sqlState(error) === UNIQUE_VIOLATION;
export const isLocked = (error: unknown): boolean => sqlState(error) === LOCK_NOT_AVAILABLE;
export const isTimeLimit = (error: unknown): boolean => sqlState(error) === QUERY_CANCELLED;
/** A deadlock or a serialization failure: the transaction may succeed if it is tried again. */
export const isConflict = (error: unknown): boolean => AGAIN.has(sqlState(error));

/** The statement is out of date: a table or a column is gone, or has another type. */
export const isOutdated = (error: unknown): boolean => {
  const state = sqlState(error instanceof Error && error.cause !== undefined ? error.cause : error);
  return state?.startsWith('42') === true;
};

/** The server itself says that it wrote nothing of the statement. */
export const isRolledBack = (error: unknown): boolean =>
  isConflict(error) || isLocked(error) || isTimeLimit(error);

export const isUnstorable = (error: unknown): boolean =>
  UNSTORABLE.test(sqlState(error) ?? '') || error instanceof RangeError || error instanceof TypeError;

/** True if recording less of an outcome would help. */
export const isTooMuch = (error: unknown): boolean =>
  TOO_MUCH.test(sqlState(error) ?? '') || error instanceof RangeError || error instanceof TypeError;

/**
 * An error without a SQLSTATE did not come from the server, so it concerns the connection; unless the values could not
 * be sent.
 */
const isTransient = (error: unknown): boolean => {
  const state = sqlState(error);
  return state === undefined
    ? !(error instanceof RangeError || error instanceof TypeError)
    : TRANSIENT.test(state);
};

/** True if the error is about the statement: the server has read it and goes on, or its values cannot even be sent. */
export const isAnswered = (error: unknown): boolean => {
  const state = sqlState(error);
  return state === undefined ? isUnstorable(error) : !GONE.test(state);
};

/** Turns a driver's error into a `TidemillError`; errors that are one already pass through. */
export function classifyError(what: string, error: unknown, outcomeUnknown = false): TidemillError {
  if (error instanceof TidemillError) return error;
  if (isUnstorable(error)) {
    const message = `${what}: the database refused it, and a retry would not help: ${reasonOf(error)}`;
    return new OptionError(message, { cause: error });
  }
  return driverError(what, error, { transient: isTransient(error), outcomeUnknown });
}

/**
 * For an outcome that the database refuses and that recording less would not help. The owner of the database may fix
 * the rule, so the error is a `StoreError` and not an `OptionError`.
 */
export const refusalOf = (what: string, error: unknown): unknown =>
  isUnstorable(error) ? driverError(what, error, { transient: false, outcomeUnknown: false }) : error;

/** Runs statements, and classifies the errors that they throw. */
export async function run<T>(what: string, statements: () => Promise<T>, outcomeUnknown = false): Promise<T> {
  try {
    return await statements();
  } catch (error) {
    throw classifyError(what, error, outcomeUnknown && !isRolledBack(error));
  }
}
