/**
 * The error tree. Every error of the library is a `TidemillError` with a stable `code`, the original `cause`, and the
 * fix in its message. `instanceof` checks a brand, so it works across two copies of the package in one process.
 */
import { hideCredentials } from './text/credentials.js';

const BRAND = Symbol.for('tidemill.error');

function brandsOf(value: unknown): readonly unknown[] {
  const brands: unknown = typeof value === 'object' && value !== null ? Reflect.get(value, BRAND) : undefined;
  return Array.isArray(brands) ? (brands as readonly unknown[]) : [];
}

function brandsOfClass(type: unknown): readonly string[] {
  if (typeof type !== 'function') return [];
  const own = Object.hasOwn(type, 'brand') ? [(type as typeof TidemillError).brand] : [];
  return [...own, ...brandsOfClass(Object.getPrototypeOf(type))];
}

export interface TidemillErrorOptions {
  readonly cause?: unknown;
  /** True if the call failed but its write may have been stored. Default: false. */
  readonly outcomeUnknown?: boolean;
}

export class TidemillError extends Error {
  static readonly brand: string = 'TidemillError';
  readonly code: string;
  readonly outcomeUnknown: boolean;

  constructor(code: string, message: string, options: TidemillErrorOptions = {}) {
    super(message, 'cause' in options ? { cause: options.cause } : undefined);
    this.name = new.target.name;
    this.code = code;
    this.outcomeUnknown = options.outcomeUnknown ?? false;
    Object.defineProperty(this, BRAND, { value: brandsOfClass(new.target), enumerable: false });
  }

  static override [Symbol.hasInstance](value: unknown): boolean {
    // A user's subclass has no brand of its own; the prototype chain decides.
    if (!Object.hasOwn(this, 'brand')) return Function.prototype[Symbol.hasInstance].call(this, value);
    return brandsOf(value).includes(this.brand);
  }
}

/** Invalid input. The message names the option, the value and the fix. Nothing was written. */
export class OptionError extends TidemillError {
  static override readonly brand: string = 'OptionError';
  constructor(message: string, options?: TidemillErrorOptions) {
    super('BAD_OPTION', message, options);
  }
}

/** One fault of a payload, as its schema tells it: `Issue` of Standard Schema. */
export interface PayloadIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** A payload does not fit the schema of its job. `issues` has what the schema found. Nothing was written. */
export class PayloadError extends OptionError {
  static override readonly brand: string = 'PayloadError';
  override readonly code: string = 'BAD_PAYLOAD';
  readonly issues: readonly PayloadIssue[];
  constructor(message: string, issues: readonly PayloadIssue[]) {
    super(message);
    this.issues = issues;
  }
}

/** Throw this from a handler to skip the remaining retries: the job goes straight to `failed`. */
export class FatalError extends TidemillError {
  static override readonly brand: string = 'FatalError';
  constructor(message: string, options?: TidemillErrorOptions) {
    super('FATAL', message, options);
  }
}

/** The database was unreachable or refused the command. If `outcomeUnknown` is set, the write may have been stored. */
export class StoreError extends TidemillError {
  static override readonly brand: string = 'StoreError';
  /** True if a retry may succeed. */
  readonly transient: boolean;
  constructor(message: string, options: TidemillErrorOptions & { readonly transient?: boolean } = {}) {
    super('STORE', message, options);
    this.transient = options.transient ?? false;
  }
}

/** The message of an error, or the text of any other thrown value. */
export const reasonOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/**
 * Wraps a driver's error. Credentials are removed from its message. `outcomeUnknown` is kept only for transient errors:
 * a command that the server refused was not stored.
 */
export function driverError(
  what: string,
  error: unknown,
  { transient, outcomeUnknown }: { readonly transient: boolean; readonly outcomeUnknown: boolean },
): StoreError {
  const unknown = transient && outcomeUnknown;
  const hint = unknown
    ? ' The write may have been stored; it is safe to repeat the call with the same `id`.'
    : '';
  const message = `${what}: ${hideCredentials(reasonOf(error))}.${hint}`;
  return new StoreError(message, { cause: error, transient, outcomeUnknown: unknown });
}

/** A count with a `limit` ran into the time limit. There is no partial count to return. */
export const countTooLong = (what: string, limitMs: number, cause: unknown): TidemillError =>
  new TidemillError(
    'TIME_LIMIT',
    `${what}: it took longer than ${String(limitMs / 1_000)} s and was stopped. Narrow the filter by name, status or time, or leave out \`limit\` to count without a time limit.`,
    { cause },
  );

/** `withLock` waited in vain: another call still holds the lock. */
export class LockTakenError extends TidemillError {
  static override readonly brand: string = 'LockTakenError';
  readonly key: string;
  /** The `instanceId` of the mill that holds the lock. */
  readonly heldBy: string;
  constructor(message: string, { key, heldBy }: { readonly key: string; readonly heldBy: string }) {
    super('LOCK_TAKEN', message);
    this.key = key;
    this.heldBy = heldBy;
  }
}

/** The abort reason of a handler's `signal` when its lease, or a lock, was taken over or not renewed in time. */
export class LeaseLostError extends TidemillError {
  static override readonly brand: string = 'LeaseLostError';
  constructor(message: string) {
    super('LEASE_LOST', message);
  }
}

/** The abort reason of a handler's `signal` when the job was cancelled. */
export class CancelledError extends TidemillError {
  static override readonly brand: string = 'CancelledError';
  constructor(message: string) {
    super('CANCELLED', message);
  }
}

/** The abort reason of a handler's `signal`, and the failure of the attempt, when it ran past its `timeout`. */
export class AttemptTimeoutError extends TidemillError {
  static override readonly brand: string = 'AttemptTimeoutError';
  constructor(message: string) {
    super('TIMEOUT', message);
  }
}

/** The abort reason of a handler's `signal` when the stop timeout of the instance has passed. */
export class StoppingError extends TidemillError {
  static override readonly brand: string = 'StoppingError';
  constructor(message: string) {
    super('STOPPING', message);
  }
}

/** The source document is gone, no longer matches, or has changed. The attempt ends as completed (skipped). */
export class TaskConditionFailedError extends TidemillError {
  static override readonly brand: string = 'TaskConditionFailedError';
  constructor(message: string) {
    super('TASK_CONDITION_FAILED', message);
  }
}

/** Returns the thrown value as an Error. */
export function asError(thrown: unknown): Error {
  if (thrown instanceof Error) return thrown;
  if (typeof thrown === 'string') return new Error(thrown);
  try {
    return new Error(`A handler threw something that is not an Error: ${JSON.stringify(thrown)}`, {
      cause: thrown,
    });
  } catch {
    return new Error('A handler threw something that is not an Error', { cause: thrown });
  }
}
