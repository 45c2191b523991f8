/** Classifies driver errors, in this one place: by code, label or class, never by message text. */
import {
  MongoBulkWriteError,
  MongoClientBulkWriteError,
  MongoError,
  MongoNetworkError,
  MongoNetworkTimeoutError,
  MongoServerError,
  MongoServerSelectionError,
  MongoWriteConcernError,
  type ClientBulkWriteResult,
} from 'mongodb';
import { countTooLong, driverError, OptionError, reasonOf, TidemillError } from '../core/errors.js';

const DUPLICATE_KEY = 11_000;
const WRITE_CONFLICT = 112;
const TIME_LIMIT = 50;
const TOO_LARGE: ReadonlySet<unknown> = new Set([10_334, 17_419, 17_420, 17_280]);
/** Step-downs, shutdowns, interruptions, network and write concern errors: a retry may succeed. */
const TRANSIENT: ReadonlySet<unknown> = new Set([
  6, 7, 24, 43, 50, 63, 64, 79, 89, 91, 100, 112, 133, 134, 150, 189, 234, 237, 262, 290, 317, 358, 384, 402,
  9001, 10_107, 11_600, 11_601, 11_602, 13_388, 13_435, 13_436,
]);
const NO_CHANGE_STREAMS: ReadonlySet<unknown> = new Set([40_573, 115, 20]);

const codeOf = (error: unknown): unknown => (error instanceof MongoServerError ? error.code : undefined);

/** `$merge` runs under another collation than the index that it merges on. */
const OTHER_COLLATION = 51_183;

/** Among others: a hint names an index that does not exist. */
const BAD_VALUE = 2;

/** The collection does not exist. */
const NO_NAMESPACE = 26;

/** Rights, unknown commands, invalid namespaces and views: no document is at fault, whatever the batch holds. */
const STATEMENT: ReadonlySet<unknown> = new Set([13, 18, 59, 73, 115, 166]);

/** The collection's validator refuses a document. */
const VALIDATION_FAILED = 121;

export const isInvalid = (error: unknown): boolean =>
  codeOf(error) === VALIDATION_FAILED ||
  (error instanceof MongoClientBulkWriteError &&
    [...error.writeErrors.values()].some(({ code }) => code === VALIDATION_FAILED));
export const isStatementFault = (error: unknown): boolean => STATEMENT.has(codeOf(error));
export const isMissing = (error: unknown): boolean => codeOf(error) === NO_NAMESPACE;
export const isBadValue = (error: unknown): boolean => codeOf(error) === BAD_VALUE;
export const isOtherCollation = (error: unknown): boolean => codeOf(error) === OTHER_COLLATION;
/** Another transaction has written to the document. */
export const isConflict = (error: unknown): boolean => codeOf(error) === WRITE_CONFLICT;
export const isDuplicate = (error: unknown): boolean => codeOf(error) === DUPLICATE_KEY;
/**
 * Time limit of statements that hand on the work of dead instances. The open transaction of a dead process holds its
 * document for up to a minute, and must not hold up the rest.
 */
export const HAND_ON_MS = 1_000;

/** The statement was written, and the time limit ended the wait for other members of the replica set. */
export const isUnconfirmed = (error: unknown): boolean =>
  error instanceof MongoBulkWriteError && error.result.getWriteConcernError() !== undefined;

/** The connection timed out before the server responded. */
export const isUnanswered = (error: unknown): boolean => error instanceof MongoNetworkTimeoutError;

export const isTimeLimit = (error: unknown): boolean => codeOf(error) === TIME_LIMIT;

/**
 * Returns how many documents a statement changed or deleted, if it was written but not confirmed within its time limit.
 */
export function unconfirmedCount(error: unknown): number | undefined {
  if (!isTimeLimit(error)) return undefined;
  if (error instanceof MongoWriteConcernError) return Number(error.result['n']);
  if (!(error instanceof MongoBulkWriteError) || !isUnconfirmed(error)) return undefined;
  return [error.writeErrors].flat().length === 0 ? error.matchedCount + error.deletedCount : undefined;
}

/** The same for a command that reports on each of its statements. */
export function unconfirmedResult(error: unknown): ClientBulkWriteResult | undefined {
  if (!(error instanceof MongoClientBulkWriteError) || error.writeErrors.size > 0) return undefined;
  const codes = error.writeConcernErrors.map(({ code }): unknown => code);
  return codes.length > 0 && codes.every((code) => code === TIME_LIMIT) ? error.partialResult : undefined;
}

/** Reports a count that ran into its time limit; a count has no partial result to return. */
export function refuseCount(what: string, limitMs: number, error: unknown): never {
  if (isTimeLimit(error)) throw countTooLong(what, limitMs, error);
  throw error;
}

/** The operating system's own error, such as EPIPE: the driver passes on that of a write to a connection that is gone. */
const isSystemError = (error: unknown): boolean => error instanceof Error && 'syscall' in error;

const isTooLarge = (error: unknown): boolean => TOO_LARGE.has(codeOf(error)) || error instanceof RangeError;
export const lacksChangeStreams = (error: unknown): boolean => NO_CHANGE_STREAMS.has(codeOf(error));

/** The value can never be stored: it is too large, or the driver cannot encode it as BSON. */
export const isUnstorable = (error: unknown): boolean =>
  isTooLarge(error) || !(error instanceof MongoError || isSystemError(error));

export function isTransient(error: unknown): boolean {
  if (error instanceof MongoNetworkError || error instanceof MongoServerSelectionError) return true;
  if (isSystemError(error)) return true;
  if (!(error instanceof MongoError)) return false;
  // A bulk write wraps the actual error, without its class or its labels.
  if (error instanceof MongoBulkWriteError && (error.errorResponse as unknown) instanceof Error)
    return isTransient(error.errorResponse);
  if (error instanceof MongoClientBulkWriteError) {
    const codes = [...error.writeErrors.values()].map(({ code }) => code);
    return (
      codes.every((code) => TRANSIENT.has(code)) && (error.cause === undefined || isTransient(error.cause))
    );
  }
  if (error.hasErrorLabel('RetryableWriteError') || error.hasErrorLabel('TransientTransactionError'))
    return true;
  if (TRANSIENT.has(codeOf(error))) return true;
  // Pool and connection errors have no code, so the name of their class identifies them.
  return /^Mongo(?:Pool|WaitQueue|Topology|NotConnected|ExpiredSession|ClientClosed|OperationTimeout)/u.test(
    error.name,
  );
}

/** Returns the positions of the items that an unordered bulk insert refused as duplicates; rethrows any other error. */
export function duplicatesOf(error: unknown): readonly number[] {
  if (!(error instanceof MongoBulkWriteError)) throw error;
  const errors = [error.writeErrors].flat() as readonly { readonly code: number; readonly index: number }[];
  if (errors.length === 0 || errors.some((one) => one.code !== DUPLICATE_KEY)) throw error;
  return errors.map((one) => one.index);
}

/** Converts a driver error to a TidemillError. A TidemillError passes through. */
export function classifyError(what: string, error: unknown, outcomeUnknown: boolean): TidemillError {
  if (error instanceof TidemillError) return error;
  if (isTooLarge(error)) {
    const message = `${what}: MongoDB refused it as too large: ${reasonOf(error)}`;
    return new OptionError(message, { cause: error });
  }
  return driverError(what, error, { transient: isTransient(error), outcomeUnknown });
}
