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

/** Driver errors are sorted here, once, by code or label. */
const DUPLICATE_KEY = 11_000;
const TIME_LIMIT = 50;
const TOO_LARGE: ReadonlySet<unknown> = new Set([10_334, 17_419, 17_420, 17_280]);
/** Step-downs, shutdowns, interruptions, network and write-concern trouble: waiting helps. */
const TRANSIENT: ReadonlySet<unknown> = new Set([
  6, 7, 24, 43, 50, 63, 64, 79, 89, 91, 100, 112, 133, 134, 150, 189, 234, 237, 262, 290, 317, 358, 384, 402,
  9001, 10_107, 11_600, 11_601, 11_602, 13_388, 13_435, 13_436,
]);
const NO_CHANGE_STREAMS: ReadonlySet<unknown> = new Set([40_573, 115, 20]);

const codeOf = (error: unknown): unknown => (error instanceof MongoServerError ? error.code : undefined);

/** `$merge` runs under another collation than the index that it merges by. */
const OTHER_COLLATION = 51_183;

/** Among others: a hint names an index that does not exist. */
const BAD_VALUE = 2;

/** The collection does not exist. */
const NO_NAMESPACE = 26;

/** A document that its collection's validator refuses. */
const VALIDATION_FAILED = 121;

export const isInvalid = (error: unknown): boolean =>
  codeOf(error) === VALIDATION_FAILED ||
  (error instanceof MongoClientBulkWriteError &&
    [...error.writeErrors.values()].some(({ code }) => code === VALIDATION_FAILED));
export const isMissing = (error: unknown): boolean => codeOf(error) === NO_NAMESPACE;
export const isBadValue = (error: unknown): boolean => codeOf(error) === BAD_VALUE;
export const isOtherCollation = (error: unknown): boolean => codeOf(error) === OTHER_COLLATION;
export const isDuplicate = (error: unknown): boolean => codeOf(error) === DUPLICATE_KEY;
/**
 * For statements that hand on the work of others: an open transaction of a process that died holds its document for up
 * to a minute, and must not hold up the rest.
 */
export const HAND_ON_MS = 1_000;

/** It was written, and the limit ended the wait for other members of the replica set. */
export const isUnconfirmed = (error: unknown): boolean =>
  error instanceof MongoBulkWriteError && error.result.getWriteConcernError() !== undefined;

/** The connection waited for an answer for as long as it may. */
export const isUnanswered = (error: unknown): boolean => error instanceof MongoNetworkTimeoutError;

export const isTimeLimit = (error: unknown): boolean => codeOf(error) === TIME_LIMIT;

/** How many documents a statement has changed or deleted that was written, and only not confirmed within its time limit. */
export function unconfirmedCount(error: unknown): number | undefined {
  if (!isTimeLimit(error)) return undefined;
  if (error instanceof MongoWriteConcernError) return Number(error.result['n']);
  if (!(error instanceof MongoBulkWriteError) || !isUnconfirmed(error)) return undefined;
  return [error.writeErrors].flat().length === 0 ? error.matchedCount + error.deletedCount : undefined;
}

/** The same of a command that answers for each of its statements. */
export function unconfirmedResult(error: unknown): ClientBulkWriteResult | undefined {
  if (!(error instanceof MongoClientBulkWriteError) || error.writeErrors.size > 0) return undefined;
  const codes = error.writeConcernErrors.map(({ code }): unknown => code);
  return codes.length > 0 && codes.every((code) => code === TIME_LIMIT) ? error.partialResult : undefined;
}

/** For a count with a time limit, which has no part of an answer to give. */
export function refuseCount(what: string, limitMs: number, error: unknown): never {
  if (isTimeLimit(error)) throw countTooLong(what, limitMs, error);
  throw error;
}

const isTooLarge = (error: unknown): boolean => TOO_LARGE.has(codeOf(error)) || error instanceof RangeError;
export const lacksChangeStreams = (error: unknown): boolean => NO_CHANGE_STREAMS.has(codeOf(error));

/** A value that the server will never take, or that the driver cannot even put into BSON. */
export const isUnstorable = (error: unknown): boolean => isTooLarge(error) || !(error instanceof MongoError);

export function isTransient(error: unknown): boolean {
  if (error instanceof MongoNetworkError || error instanceof MongoServerSelectionError) return true;
  if (!(error instanceof MongoError)) return false;
  // A bulk write wraps what really happened, without its class or its labels.
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
  // Pool and connection errors have no code; they are recognised by their class.
  return /^Mongo(?:Pool|WaitQueue|Topology|NotConnected|ExpiredSession|ClientClosed|OperationTimeout)/u.test(
    error.name,
  );
}

/** Positions of the items that an unordered bulk insert refused as duplicates; rethrows anything else. */
export function duplicatesOf(error: unknown): readonly number[] {
  if (!(error instanceof MongoBulkWriteError)) throw error;
  const errors = [error.writeErrors].flat() as readonly { readonly code: number; readonly index: number }[];
  if (errors.length === 0 || errors.some((one) => one.code !== DUPLICATE_KEY)) throw error;
  return errors.map((one) => one.index);
}

/** A driver's error as one of ours; ours pass through. */
export function classifyError(what: string, error: unknown, outcomeUnknown: boolean): TidemillError {
  if (error instanceof TidemillError) return error;
  if (isTooLarge(error)) {
    const message = `${what}: MongoDB refused it as too large: ${reasonOf(error)}`;
    return new OptionError(message, { cause: error });
  }
  return driverError(what, error, { transient: isTransient(error), outcomeUnknown });
}
