import { describe, expect, it } from 'vitest';
import { OptionError } from '../../src/core/errors.js';
import {
  checkBoolean,
  checkDate,
  checkFunction,
  checkInteger,
  checkKeys,
  checkOneOf,
  checkText,
  show,
} from '../../src/core/options.js';

const KNOWN = ['id', 'runAt', 'delay', 'priority', 'uniqueKey', 'retryPolicy', 'timeout'];
const keys = (options: unknown): void => checkKeys('enqueue', options, KNOWN);

describe('unknown options', () => {
  it.each([
    ['runat', 'runAt'],
    ['RunAt', 'runAt'],
    ['uniquekey', 'uniqueKey'],
    ['unique', 'uniqueKey'],
    ['prioirty', 'priority'],
    ['retry', 'retryPolicy'],
    ['timeOut', 'timeout'],
    ['delayed', 'delay'],
  ])('rejects the unknown option %s and suggests %s', (given, meant) => {
    expect(() => keys({ [given]: 1 })).toThrow(OptionError);
    expect(() => keys({ [given]: 1 })).toThrow(
      `enqueue: unknown option "${given}". Did you mean "${meant}"? Known options: id, runAt, delay,`,
    );
  });

  it.each(['zzz', 'colour', 'x'])(
    'rejects the unknown option %s without a suggestion, as no known option resembles it',
    (given) => {
      expect(() => keys({ [given]: 1 })).toThrow(`unknown option "${given}". Known options: `);
    },
  );

  it.each([
    ['jobId', 'id, or uniqueKey to block only while the job is pending or runs,'],
    ['attempts', 'retryPolicy: { maxAttempts }'],
    ['max_attempts', 'retryPolicy: { maxAttempts }'],
    ['retryLimit', 'retryPolicy: { maxAttempts }, which counts the first attempt, too,'],
    ['maxRetries', 'retryPolicy: { maxAttempts }, which counts the first attempt, too,'],
    ['backoff', "retryPolicy: { type: 'exponential', min }"],
    ['retryDelay', "retryPolicy: { type: 'fixed', interval }"],
    ['singletonKey', 'uniqueKey'],
    ['jobKey', 'uniqueKey'],
    ['startAfter', 'runAt (a Date) or delay (a duration)'],
    ['expireInSeconds', 'timeout'],
    ['removeOnComplete', 'retention: { completed }, an option of the definition and of the mill,'],
    ['lockLifetime', 'leaseDuration, an option of new Tidemill,'],
    ['repeat', "mill.schedule('@every 90s', name, data), or with a cron text,"],
    ['tz', 'timezone, an option of mill.schedule,'],
    ['timezone', 'timezone, an option of mill.schedule,'],
    ['endDate', 'repeatUntil, an option of mill.schedule,'],
    ['every', "mill.schedule('@every 90s', name, data), or with a cron text,"],
  ])('%s, a name of another library, is answered with ours', (given, here) => {
    expect(() => keys({ [given]: 1 })).toThrow(OptionError);
    expect(() => keys({ [given]: 1 })).toThrow(
      `enqueue: unknown option "${given}". That is called ${here} here. Known options: id, runAt, delay,`,
    );
  });

  it("a name of another library that has no counterpart in the call gets no hint, nor do an object's own names", () => {
    for (const given of ['jobId', 'repeat', 'constructor', '__proto__', 'toString'])
      expect(() => checkKeys('stop', JSON.parse(`{"${given}": 1}`), ['timeout'])).toThrow(
        `stop: unknown option "${given}". Known options: timeout.`,
      );
  });

  it('accepts known options, an empty object and no object at all', () => {
    expect(() => keys({ id: 'x', timeout: undefined })).not.toThrow();
    expect(() => keys(undefined)).not.toThrow();
    expect(() => keys({})).not.toThrow();
  });

  it.each([null, 5, 'id', true, [], () => 1])('rejects %s in place of an options object', (given) => {
    expect(() => keys(given)).toThrow(/^enqueue: options must be an object, got /);
  });
});

describe('option values', () => {
  it('rejects a text option that is empty or not a string', () => {
    expect(checkText('w', 'name', ' a ')).toBe(' a ');
    for (const value of ['', '  ', 5, null, undefined, {}, ['a']]) {
      expect(() => checkText('w', 'name', value)).toThrow(/^w: name must be a non-empty string, got /);
    }
  });

  it('rejects an integer option outside its limits', () => {
    expect(checkInteger('w', 'n', -10, -10, 10)).toBe(-10);
    expect(checkInteger('w', 'n', 10, -10, 10)).toBe(10);
    for (const value of [-11, 11, 1.5, Number.NaN, Infinity, '5', 5n, null]) {
      expect(() => checkInteger('w', 'n', value, -10, 10)).toThrow(
        'w: n must be a whole number from -10 to 10',
      );
    }
    expect(() => checkInteger('w', 'n', 0, 1, Number.MAX_SAFE_INTEGER)).toThrow('of at least 1, got 0');
  });

  it('rejects a non-boolean, an invalid date and a non-function', () => {
    expect(checkBoolean('w', 'b', false)).toBe(false);
    expect(() => checkBoolean('w', 'b', 'false')).toThrow('w: b must be true or false, got "false".');
    const date = new Date(0);
    expect(checkDate('w', 'd', date)).toBe(date);
    expect(() => checkDate('w', 'd', new Date(Number.NaN))).toThrow(
      'w: d must be a valid Date, got an invalid Date.',
    );
    expect(() => checkDate('w', 'd', '2025-01-01')).toThrow('got "2025-01-01"');
    expect(() => checkFunction('w', 'f', {})).toThrow('w: f must be a function, got a plain object.');
  });

  it('suggests the nearest of the allowed values', () => {
    expect(checkOneOf('w', 'missed', 'skip', ['once', 'skip', 'all'])).toBe('skip');
    expect(() => checkOneOf('w', 'missed', 'skipp', ['once', 'skip', 'all'])).toThrow(
      'w: missed must be one of once, skip, all, got "skipp". Did you mean "skip"?',
    );
    expect(() => checkOneOf('w', 'missed', 5, ['once', 'skip', 'all'])).toThrow('got 5.');
  });
});

describe('values in error messages', () => {
  it.each([
    ['text', '"text"'],
    ['x'.repeat(100), `"${'x'.repeat(57)}..."`],
    [5, '5'],
    [5n, '5n'],
    [null, 'null'],
    [undefined, 'undefined'],
    [() => 1, 'a function'],
    [[1, 2], 'an array of 2'],
    [{ a: 1 }, 'a plain object'],
    [new Map(), 'an instance of Map'],
    [Object.create(null), 'an instance of nothing'],
    [new Date(0), '1970-01-01T00:00:00.000Z'],
    [new Date(Number.NaN), 'an invalid Date'],
    [Symbol('s'), 'Symbol(s)'],
  ])('formats a value in an error message (case %#)', (value: unknown, expected) => {
    expect(show(value)).toBe(expected);
  });
});
