import { driverError, OptionError, reasonOf, TidemillError } from '../../core/errors.js';

/**
 * Errors are sorted here, once, by their SQLSTATE; both drivers carry it as `code`. Codes of the operating system, such as
 * EPIPE, have five letters as well, but no digit.
 */
export const sqlState = (error: unknown): string | undefined => {
  const code: unknown = typeof error === 'object' && error !== null ? Reflect.get(error, 'code') : undefined;
  return typeof code === 'string' && /^(?=.*\d)[0-9A-Z]{5}$/u.test(code) ? code : undefined;
};

/**
 * Connections lost, resources short, somebody in the way, an operator's intervention, a statement cut off: waiting
 * helps. A server that is being promoted or restored is read-only for a while. Poolers say XX000 where a server cannot
 * be reached, and extensions for anything: who asks about rows must not wait for it for ever. A limit that the
 * statement itself exceeds (53400), a file that is not there (58P01) and damaged data (XX001, XX002) do not pass.
 */
const TRANSIENT = /^(?:08|40|53(?!400)|55P03|57|58(?:000|030)|25006|25P0[34]|XX000)/u;
/** The connection, or the server behind it, is going or gone: that says nothing about the statement. */
const GONE = /^(?:08|57P)/u;
const LOCK_NOT_AVAILABLE = '55P03';
const QUERY_CANCELLED = '57014';
const UNIQUE_VIOLATION = '23505';
/** Too long, too large, or no text that the server's encoding knows: it will never be taken. */
const UNSTORABLE = /^(?:22|54|42P22)/u;
/** Of those, what an outcome's own values cause. Anything else is a rule of the database, which may be mended. */
const TOO_MUCH = /^(?:54|22(?:001|003|008|021|P02|P05)|42P22)/u;
const AGAIN: ReadonlySet<string | undefined> = new Set(['40001', '40P01']);

export const isUnique = (error: unknown): boolean => sqlState(error) === UNIQUE_VIOLATION;
export const isLocked = (error: unknown): boolean => sqlState(error) === LOCK_NOT_AVAILABLE;
export const isTimeLimit = (error: unknown): boolean => sqlState(error) === QUERY_CANCELLED;
/** A transaction that met another one, and may succeed when it is tried again. */
export const isConflict = (error: unknown): boolean => AGAIN.has(sqlState(error));

/** The server says itself that it wrote nothing of the statement. */
export const isRolledBack = (error: unknown): boolean =>
  isConflict(error) || isLocked(error) || isTimeLimit(error);

export const isUnstorable = (error: unknown): boolean =>
  UNSTORABLE.test(sqlState(error) ?? '') || error instanceof RangeError || error instanceof TypeError;

/** True where recording less of an outcome would help. */
export const isTooMuch = (error: unknown): boolean =>
  TOO_MUCH.test(sqlState(error) ?? '') || error instanceof RangeError || error instanceof TypeError;

/** An error that the server did not send is about the connection to it. */
const isTransient = (error: unknown): boolean => {
  const state = sqlState(error);
  return state === undefined
    ? !(error instanceof RangeError || error instanceof TypeError)
    : TRANSIENT.test(state);
};

/** It is about the statement: the server has looked at it and goes on, or its values cannot even be sent. */
export const isAnswered = (error: unknown): boolean => {
  const state = sqlState(error);
  return state === undefined ? isUnstorable(error) : !GONE.test(state);
};

/** A driver's error as one of ours; ours pass through. */
export function classifyError(what: string, error: unknown, outcomeUnknown = false): TidemillError {
  if (error instanceof TidemillError) return error;
  if (isUnstorable(error)) {
    const message = `${what}: the database refused it for good: ${reasonOf(error)}`;
    return new OptionError(message, { cause: error });
  }
  return driverError(what, error, { transient: isTransient(error), outcomeUnknown });
}

/** An outcome that is not too much for the database, and refused all the same: a rule of it may be mended. */
export const refusalOf = (what: string, error: unknown): unknown =>
  isUnstorable(error) ? driverError(what, error, { transient: false, outcomeUnknown: false }) : error;

/** Runs statements and sorts what they throw. */
export async function run<T>(what: string, statements: () => Promise<T>, outcomeUnknown = false): Promise<T> {
  try {
    return await statements();
  } catch (error) {
    throw classifyError(what, error, outcomeUnknown && !isRolledBack(error));
  }
}
