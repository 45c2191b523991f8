/**
 * The error tree. Every error of the library is a `TidemillError` with a stable `code`, its `cause` kept, and the
 * fix in its message. Classes are recognised by a brand, so that two copies of the package in one process agree.
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
  /** True where a write was rejected but may have been stored all the same. Default: false. */
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
    // A subclass that a user makes has no brand of its own: for it the ordinary rule holds.
    if (!Object.hasOwn(this, 'brand')) return Function.prototype[Symbol.hasInstance].call(this, value);
    return brandsOf(value).includes(this.brand);
  }
}

/** Bad input: names the option, the value and the fix. Nothing was written. */
export class OptionError extends TidemillError {
  static override readonly brand: string = 'OptionError';
  constructor(message: string, options?: TidemillErrorOptions) {
    super('BAD_OPTION', message, options);
  }
}

/** Thrown by a handler to say that trying again is pointless: the job goes straight to `failed`. */
export class FatalError extends TidemillError {
  static override readonly brand: string = 'FatalError';
  constructor(message: string, options?: TidemillErrorOptions) {
    super('FATAL', message, options);
  }
}

/** The database could not be reached or refused the command. `outcomeUnknown` says whether the write may exist. */
export class StoreError extends TidemillError {
  static override readonly brand: string = 'StoreError';
  /** True where waiting and trying again may help. */
  readonly transient: boolean;
  constructor(message: string, options: TidemillErrorOptions & { readonly transient?: boolean } = {}) {
    super('STORE', message, options);
    this.transient = options.transient ?? false;
  }
}

/** What an error says. */
export const reasonOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** What a driver threw, as an error of ours: whether waiting helps, and whether the write may exist. */
export function driverError(
  what: string,
  error: unknown,
  { transient, outcomeUnknown }: { readonly transient: boolean; readonly outcomeUnknown: boolean },
): StoreError {
  const unknown = transient && outcomeUnknown;
  const hint = unknown
    ? ' It may have been stored all the same; a call with the same `id` is safe to repeat.'
    : '';
  const message = `${what}: ${hideCredentials(reasonOf(error))}.${hint}`;
  return new StoreError(message, { cause: error, transient, outcomeUnknown: unknown });
}

/** A count with a limit looked at too much: what it has seen so far is no answer. */
export const countTooLong = (what: string, limitMs: number, cause: unknown): TidemillError =>
  new TidemillError(
    'TIME_LIMIT',
    `${what}: it took longer than ${String(limitMs / 1_000)} s and was ended. Narrow the filter, by name, status or time; or leave out \`limit\`, and wait.`,
    { cause },
  );

/** `withLock` waited, and somebody else has the lock still. */
export class LockTakenError extends TidemillError {
  static override readonly brand: string = 'LockTakenError';
  readonly key: string;
  /** The `instanceId` of the mill that has it. */
  readonly heldBy: string;
  constructor(message: string, { key, heldBy }: { readonly key: string; readonly heldBy: string }) {
    super('LOCK_TAKEN', message);
    this.key = key;
    this.heldBy = heldBy;
  }
}

/** The reason on a handler's `signal` when its lease, or a lock, was taken over or could not be renewed in time. */
export class LeaseLostError extends TidemillError {
  static override readonly brand: string = 'LeaseLostError';
  constructor(message: string) {
    super('LEASE_LOST', message);
  }
}

/** The reason on a handler's `signal` when somebody cancelled the job. */
export class CancelledError extends TidemillError {
  static override readonly brand: string = 'CancelledError';
  constructor(message: string) {
    super('CANCELLED', message);
  }
}

/** The reason on a handler's `signal`, and the failure of the attempt, when it ran past its `timeout`. */
export class AttemptTimeoutError extends TidemillError {
  static override readonly brand: string = 'AttemptTimeoutError';
  constructor(message: string) {
    super('TIMEOUT', message);
  }
}

/** The reason on a handler's `signal` when the instance stops and could not wait any longer. */
export class StoppingError extends TidemillError {
  static override readonly brand: string = 'StoppingError';
  constructor(message: string) {
    super('STOPPING', message);
  }
}

/** The source document is gone, no longer matches, or has changed: the attempt ends as completed (skipped). */
export class TaskConditionFailedError extends TidemillError {
  static override readonly brand: string = 'TaskConditionFailedError';
  constructor(message: string) {
    super('TASK_CONDITION_FAILED', message);
  }
}

/** Whatever was thrown, as an Error. */
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
