import { beforeEach, describe, expect, it, vi } from 'vitest';
import * as here from '../../src/core/errors.js';
import { decideRetry } from '../../src/time/retry-decision.js';
import { retryRule } from '../../src/time/retry.js';

type Errors = typeof here;

/** One error of each class, as a copy of the package creates them. */
const samples = (errors: Errors): Readonly<Record<string, Error>> => ({
  TidemillError: new errors.TidemillError('CODE', 'm'),
  OptionError: new errors.OptionError('m'),
  FatalError: new errors.FatalError('m'),
  StoreError: new errors.StoreError('m'),
  LockTakenError: new errors.LockTakenError('m', { key: 'k', heldBy: 'who' }),
  LeaseLostError: new errors.LeaseLostError('m'),
  CancelledError: new errors.CancelledError('m'),
  AttemptTimeoutError: new errors.AttemptTimeoutError('m'),
  StoppingError: new errors.StoppingError('m'),
  TaskConditionFailedError: new errors.TaskConditionFailedError('m'),
});

const classes = (errors: Errors): Readonly<Record<string, abstract new (...args: never[]) => unknown>> =>
  Object.fromEntries(Object.keys(samples(errors)).map((name) => [name, errors[name as 'FatalError']]));

describe('error classes', () => {
  it('every error has a stable code and its own name, and is an Error and a TidemillError', () => {
    expect(
      Object.entries(samples(here)).map(([name, error]) => [name, (error as here.TidemillError).code]),
    ).toEqual([
      ['TidemillError', 'CODE'],
      ['OptionError', 'BAD_OPTION'],
      ['FatalError', 'FATAL'],
      ['StoreError', 'STORE'],
      ['LockTakenError', 'LOCK_TAKEN'],
      ['LeaseLostError', 'LEASE_LOST'],
      ['CancelledError', 'CANCELLED'],
      ['AttemptTimeoutError', 'TIMEOUT'],
      ['StoppingError', 'STOPPING'],
      ['TaskConditionFailedError', 'TASK_CONDITION_FAILED'],
    ]);
    for (const [name, error] of Object.entries(samples(here))) {
      expect(error).toBeInstanceOf(Error);
      expect(error).toBeInstanceOf(here.TidemillError);
      expect(error.name).toBe(name);
      expect(error.stack).toContain('errors.test');
    }
  });

  it('an error keeps the cause it was given, even if that is undefined', () => {
    const cause = new Error('why');
    expect(new here.FatalError('m', { cause }).cause).toBe(cause);
    expect('cause' in new here.FatalError('m', { cause: undefined })).toBe(true);
    expect('cause' in new here.FatalError('m')).toBe(false);
  });

  it('a StoreError says whether the outcome is unknown and whether waiting may help', () => {
    expect(new here.StoreError('m')).toMatchObject({ outcomeUnknown: false, transient: false });
    expect(new here.StoreError('m', { outcomeUnknown: true, transient: true })).toMatchObject({
      outcomeUnknown: true,
      transient: true,
    });
  });

  it('an error does not list its brand among its properties', () => {
    expect(Object.keys(new here.FatalError('m')).sort()).toEqual(['code', 'name', 'outcomeUnknown']);
    expect(JSON.stringify(new here.FatalError('m'))).not.toContain('brand');
  });

  it.each([null, undefined, 'text', 5, {}, new Error('x'), () => 1])(
    '%s is not an instance of any Tidemill error class',
    (value) => {
      for (const type of Object.values(classes(here))) expect(value instanceof type).toBe(false);
    },
  );
});

describe('two copies of the package in one process', () => {
  let there: Errors;
  beforeEach(async () => {
    vi.resetModules();
    there = await import('../../src/core/errors.js');
  });

  it('two imports of the error module really define different classes', () => {
    expect(there.FatalError).not.toBe(here.FatalError);
  });

  it('errors of one copy are instances of the same class of the other copy, and of no sibling', () => {
    for (const [name, error] of Object.entries(samples(there))) {
      for (const [other, type] of Object.entries(classes(here))) {
        expect(error instanceof type, `${name} of one instanceof ${other} of the other`).toBe(
          other === name || other === 'TidemillError',
        );
      }
    }
  });

  it("a user's subclass of one copy's FatalError is a FatalError for the other copy", () => {
    class NoSuchUser extends there.FatalError {}
    const error = new NoSuchUser('who?');
    expect(error).toBeInstanceOf(NoSuchUser);
    expect(error).toBeInstanceOf(here.FatalError);
    expect(error).toBeInstanceOf(here.TidemillError);
    expect(error).not.toBeInstanceOf(here.OptionError);
    expect(
      decideRetry(retryRule('here'), { failures: 1, firstFailedAt: new Date(0), now: 0, error }),
    ).toBeNull();
  });
});

describe("users' subclasses of errors", () => {
  class PaymentError extends here.FatalError {
    readonly amount: number;
    constructor(amount: number) {
      super(`no ${String(amount)}`);
      this.amount = amount;
    }
  }
  class CardError extends PaymentError {}

  it("a user's subclass is an instance of its parents, but not the other way round", () => {
    const card = new CardError(5);
    expect(card).toBeInstanceOf(CardError);
    expect(card).toBeInstanceOf(PaymentError);
    expect(card).toBeInstanceOf(here.FatalError);
    expect(card).toMatchObject({ name: 'CardError', code: 'FATAL', amount: 5 });
    expect(new PaymentError(1)).not.toBeInstanceOf(CardError);
    expect(new here.FatalError('m')).not.toBeInstanceOf(PaymentError);
    expect(null).not.toBeInstanceOf(CardError);
  });

  it("a user's subclass is not an instance of its sibling", () => {
    class Other extends here.FatalError {}
    expect(new Other('m')).not.toBeInstanceOf(PaymentError);
  });
});

describe('asError', () => {
  it('asError returns an Error unchanged', () => {
    const error = new TypeError('x');
    expect(here.asError(error)).toBe(error);
  });

  it('asError wraps a string as the message and anything else as the cause', () => {
    expect(here.asError('text').message).toBe('text');
    expect(here.asError({ code: 5 })).toMatchObject({ cause: { code: 5 } });
    expect(here.asError({ code: 5 }).message).toContain('{"code":5}');
    expect(here.asError(undefined)).toBeInstanceOf(Error);
    expect(here.asError(null)).toBeInstanceOf(Error);
  });

  it('asError handles values that cannot be serialized', () => {
    const circle: Record<string, unknown> = {};
    circle['self'] = circle;
    expect(here.asError(circle).cause).toBe(circle);
    expect(here.asError(5n).cause).toBe(5n);
    expect(here.asError(Symbol('s'))).toBeInstanceOf(Error);
  });
});
