import { beforeEach, describe, expect, it, vi } from 'vitest';
import * as here from '../../src/core/errors.js';
import { decideRetry, retryRule } from '../../src/time/retry.js';

type Errors = typeof here;

/** One of each, as a copy of the package makes them. */
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

describe('the error tree', () => {
  it('every error has a stable code, its own name, and is an Error and a TidemillError', () => {
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

  it('keeps the cause where one was given, even if it is undefined', () => {
    const cause = new Error('why');
    expect(new here.FatalError('m', { cause }).cause).toBe(cause);
    expect('cause' in new here.FatalError('m', { cause: undefined })).toBe(true);
    expect('cause' in new here.FatalError('m')).toBe(false);
  });

  it('says whether the outcome is unknown, and whether waiting may help', () => {
    expect(new here.StoreError('m')).toMatchObject({ outcomeUnknown: false, transient: false });
    expect(new here.StoreError('m', { outcomeUnknown: true, transient: true })).toMatchObject({
      outcomeUnknown: true,
      transient: true,
    });
  });

  it('does not show its brand among its properties', () => {
    expect(Object.keys(new here.FatalError('m')).sort()).toEqual(['code', 'name', 'outcomeUnknown']);
    expect(JSON.stringify(new here.FatalError('m'))).not.toContain('brand');
  });

  it.each([null, undefined, 'text', 5, {}, new Error('x'), () => 1])('%s is none of them', (value) => {
    for (const type of Object.values(classes(here))) expect(value instanceof type).toBe(false);
  });
});

describe('two copies of the package in one process', () => {
  let there: Errors;
  beforeEach(async () => {
    vi.resetModules();
    there = await import('../../src/core/errors.js');
  });

  it('are really two', () => {
    expect(there.FatalError).not.toBe(here.FatalError);
  });

  it('agree on every class, and on nothing more', () => {
    for (const [name, error] of Object.entries(samples(there))) {
      for (const [other, type] of Object.entries(classes(here))) {
        expect(error instanceof type, `${name} of one instanceof ${other} of the other`).toBe(
          other === name || other === 'TidemillError',
        );
      }
    }
  });

  it('agree on a subclass that a user made of the other copy', () => {
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

describe('a subclass of a user', () => {
  class PaymentError extends here.FatalError {
    readonly amount: number;
    constructor(amount: number) {
      super(`no ${String(amount)}`);
      this.amount = amount;
    }
  }
  class CardError extends PaymentError {}

  it('follows the ordinary rule downwards and the brand upwards', () => {
    const card = new CardError(5);
    expect(card).toBeInstanceOf(CardError);
    expect(card).toBeInstanceOf(PaymentError);
    expect(card).toBeInstanceOf(here.FatalError);
    expect(card).toMatchObject({ name: 'CardError', code: 'FATAL', amount: 5 });
    expect(new PaymentError(1)).not.toBeInstanceOf(CardError);
    expect(new here.FatalError('m')).not.toBeInstanceOf(PaymentError);
    expect(null).not.toBeInstanceOf(CardError);
  });

  it('of one’s own class is not taken for a sibling', () => {
    class Other extends here.FatalError {}
    expect(new Other('m')).not.toBeInstanceOf(PaymentError);
  });
});

describe('whatever was thrown, as an Error', () => {
  it('is itself where it is one', () => {
    const error = new TypeError('x');
    expect(here.asError(error)).toBe(error);
  });

  it('carries the text, or what was thrown', () => {
    expect(here.asError('text').message).toBe('text');
    expect(here.asError({ code: 5 })).toMatchObject({ cause: { code: 5 } });
    expect(here.asError({ code: 5 }).message).toContain('{"code":5}');
    expect(here.asError(undefined)).toBeInstanceOf(Error);
    expect(here.asError(null)).toBeInstanceOf(Error);
  });

  it('survives what cannot be shown', () => {
    const circle: Record<string, unknown> = {};
    circle['self'] = circle;
    expect(here.asError(circle).cause).toBe(circle);
    expect(here.asError(5n).cause).toBe(5n);
    expect(here.asError(Symbol('s'))).toBeInstanceOf(Error);
  });
});
