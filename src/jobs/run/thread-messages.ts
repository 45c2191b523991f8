import type { MessagePort } from 'node:worker_threads';
import { asError, FatalError } from '../../core/errors.js';
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
