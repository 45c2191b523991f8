import { isAnyArrayBuffer, isBoxedPrimitive, isDate, isNativeError, isRegExp } from 'node:util/types';
import type { MessagePort } from 'node:worker_threads';
import { asError, FatalError, OptionError } from '../../core/errors.js';
import { show } from '../../core/options.js';
import type { JobFacts } from '../context.js';

/** What a thread is told of a job. */
export type ThreadJob = Pick<
  JobFacts,
  'id' | 'name' | 'data' | 'attempt' | 'failCount' | 'uniqueKey' | 'scheduledFor' | 'limitKey'
>;

/** What a thread is asked: to run a job, or to check that its module has a handler. */
export type ThreadRequest =
  | { readonly module: string; readonly check: true }
  | { readonly module: string; readonly job: ThreadJob; readonly port: MessagePort };

/** From a handler to its job. The last one is `returned` or `threw`. */
export type FromThread =
  | { readonly kind: 'progress'; readonly value: unknown }
  | { readonly kind: 'log'; readonly message: unknown; readonly fields: unknown }
  | { readonly kind: 'defer'; readonly until: unknown }
  | { readonly kind: 'returned'; readonly result: unknown }
  | { readonly kind: 'threw'; readonly error: SentError };

/** To the handler: its signal aborts. */
export interface ToThread {
  readonly abort: SentError;
}

const isKept = (value: object): boolean =>
  isDate(value) ||
  isRegExp(value) ||
  isNativeError(value) ||
  isBoxedPrimitive(value) ||
  isAnyArrayBuffer(value) ||
  ArrayBuffer.isView(value);

/** The parts of a value that cross with it, each with its path; undefined if it would lose its class. */
function partsOf(
  value: object,
  path: string,
): readonly (readonly [path: string, part: unknown])[] | undefined {
  if (Array.isArray(value)) return value.map((item: unknown, at) => [`${path}[${String(at)}]`, item]);
  if (value instanceof Map) return [...value].map(([key, item]) => [`${path}.get(${show(key)})`, item]);
  if (value instanceof Set) return [...value].map((item: unknown, at) => [`${path}[${String(at)}]`, item]);
  if (isKept(value)) return [];
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) return undefined;
  return Object.entries(value).map(([key, item]) => [`${path}.${key}`, item]);
}

/**
 * Refuses what structured cloning would turn into something else without a word: an instance of a class, such as an
 * `ObjectId`, arrives as a plain object.
 */
export function checkCrossing(value: unknown, path: string, seen: Set<object> = new Set()): void {
  if (typeof value === 'function' || typeof value === 'symbol') throw cannotCross(value, path);
  if (typeof value !== 'object' || value === null || seen.has(value)) return;
  seen.add(value);
  const parts = partsOf(value, path);
  if (parts === undefined) throw cannotCross(value, path);
  for (const [at, part] of parts) checkCrossing(part, at, seen);
}

const cannotCross = (value: unknown, path: string): OptionError =>
  new OptionError(
    `${path} is ${show(value)}, which cannot cross between threads unchanged; use a string or a plain object.`,
  );

/** An error as it crosses between threads, where structured cloning would keep its message only. */
export interface SentError {
  readonly isFatal: boolean;
  readonly message: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

const KEPT = ['name', 'stack', 'code', 'retryAfter'];

export function sentError(thrown: unknown): SentError {
  const error = asError(thrown);
  const read = KEPT.map((key) => [key, Reflect.get(error, key) as unknown] as const);
  const fields = Object.fromEntries(read.filter(([, value]) => isPlain(value)));
  return { isFatal: thrown instanceof FatalError, message: error.message, fields };
}

/** A `code` or `retryAfter` may be anything, and one value that cannot be cloned would lose the whole error. */
const isPlain = (value: unknown): boolean =>
  ['string', 'number', 'boolean'].includes(typeof value) || value instanceof Date;

export function receivedError({ isFatal, message, fields }: SentError): Error {
  const error = isFatal ? new FatalError(message) : new Error(message);
  for (const [key, value] of Object.entries(fields))
    Object.defineProperty(error, key, {
      value,
      configurable: true,
      writable: true,
      enumerable: key !== 'stack',
    });
  return error;
}
