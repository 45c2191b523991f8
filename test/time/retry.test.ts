import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FatalError, OptionError } from '../../src/core/errors.js';
import { decideRetry, type FailureFacts } from '../../src/time/retry-decision.js';
import { retryRule, TASK_RETRY, type RetryPolicy } from '../../src/time/retry.js';

const NOW = Date.parse('2025-05-05T12:00:00Z');
const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const DEFAULT_JOB_RETRY = { type: 'exponential', min: '2s', max: '1d', factor: 2 } as const;

/** The waits after the first failure, the second, and so on, until the sequence ends. */
function waits(policy: RetryPolicy | undefined, most = 20): number[] {
  const rule = retryRule('here', policy);
  const found: number[] = [];
  for (let failures = 1; failures <= most; failures += 1) {
    const at = decideRetry(rule, facts({ failures }));
    if (at === null) break;
    found.push(at.getTime() - NOW);
  }
  return found;
}

const facts = (given: Partial<FailureFacts>): FailureFacts => ({
  failures: 1,
  firstFailedAt: new Date(NOW),
  now: NOW,
  error: new Error('no'),
  random: () => 0,
  ...given,
});

const decide = (policy: RetryPolicy, given: Partial<FailureFacts>): number | null =>
  decideRetry(retryRule('here', policy), facts(given))?.getTime() ?? null;

describe('the default retry policy', () => {
  it('waits 2 s, 4 s, 8 s and so on by default, and gives up after ten attempts', () => {
    expect(waits(undefined)).toEqual([2, 4, 8, 16, 32, 64, 128, 256, 512].map((s) => s * SECOND));
    expect(waits(DEFAULT_JOB_RETRY)).toEqual(waits(undefined));
  });

  it('never waits longer than a day by default', () => {
    const all = waits({ ...DEFAULT_JOB_RETRY, maxAttempts: -1 }, 40);
    expect(all).toHaveLength(40);
    expect(all[15]).toBe(65_536 * SECOND);
    expect(new Set(all.slice(16))).toEqual(new Set([DAY]));
  });
});

describe('a policy without a type', () => {
  it('keeps the default delays, and has its own limits', () => {
    expect(waits({ maxAttempts: 3 })).toEqual([2_000, 4_000]);
    expect(waits({ maxAttempts: 1 })).toEqual([]);
    expect(waits({ maxDuration: '1h' })).toHaveLength(20);
    expect(decide({ maxAttempts: 3, jitter: 1 }, { random: () => 0.5 })).toBe(NOW + 1_000);
    const task = retryRule('here', { maxAttempts: 3 }, TASK_RETRY);
    expect(decideRetry(task, facts({ failures: 2 }))?.getTime()).toBe(NOW + 20_000);
    expect(decideRetry(task, facts({ failures: 3 }))).toBeNull();
  });

  it.each([
    [
      "another library's name",
      { attempts: 3 },
      'unknown option "attempts". That is called maxAttempts here.',
    ],
    ['a misspelt limit', { maxAttemps: 3 }, 'unknown option "maxAttemps". Did you mean "maxAttempts"?'],
    ['an option of a type', { interval: '5s' }, 'type must be one of fixed, linear'],
    ['a wrong limit', { maxAttempts: 0 }, 'maxAttempts (or -1 for unlimited) must be a whole number'],
  ])('refuses %s', (_what, policy, message) => {
    expect(() => retryRule('here', policy as RetryPolicy)).toThrow(message);
  });
});

describe('the five retry policies', () => {
  it('fixed waits the same each time', () => {
    expect(waits({ type: 'fixed', interval: '10s', maxAttempts: 4 })).toEqual([10_000, 10_000, 10_000]);
  });

  it('linear waits one interval more each time', () => {
    expect(waits({ type: 'linear', interval: '5s', maxAttempts: 5 })).toEqual([
      5_000, 10_000, 15_000, 20_000,
    ]);
  });

  it('exponential grows by its factor from min to max', () => {
    const policy = { type: 'exponential', min: '1s', max: '1m', factor: 3, maxAttempts: 7 } as const;
    expect(waits(policy)).toEqual([1, 3, 9, 27, 60, 60].map((s) => s * SECOND));
  });

  it('an exponential policy without further options starts where the default does, doubles and ends at a day', () => {
    const all = waits({ type: 'exponential', maxAttempts: -1 });
    expect(all.slice(0, 3)).toEqual([2_000, 4_000, 8_000]);
    expect(Math.max(...all)).toBe(DAY);
  });

  it('an exponential policy of a reactive task starts at 10 s, as the default of tasks does', () => {
    const rule = retryRule('here', { type: 'exponential' }, TASK_RETRY);
    expect(decideRetry(rule, facts({}))?.getTime()).toBe(NOW + 10_000);
    expect(rule.maxAttempts).toBe(5);
  });

  it('series takes its intervals in order and repeats the last one', () => {
    expect(waits({ type: 'series', intervals: ['1m', '5m', 900_000], maxAttempts: 7 })).toEqual([
      MINUTE,
      5 * MINUTE,
      15 * MINUTE,
      15 * MINUTE,
      15 * MINUTE,
      15 * MINUTE,
    ]);
  });

  it('cron waits for the next time of its expression, in its zone', () => {
    expect(waits({ type: 'cron', expression: '*/30 * * * *', maxAttempts: 3 })).toEqual([
      30 * MINUTE,
      30 * MINUTE,
    ]);
    // Noon in London in summer is 11:00 UTC, an hour ago; the next one is 23 hours away.
    expect(
      waits({ type: 'cron', expression: '0 12 * * *', timezone: 'Europe/London', maxAttempts: 2 }),
    ).toEqual([23 * HOUR]);
  });

  it('cron goes by the time of the latest failure, not of the first one', () => {
    const later = NOW + 7 * MINUTE;
    expect(decide({ type: 'cron', expression: '*/5 * * * *' }, { failures: 3, now: later })).toBe(
      NOW + 10 * MINUTE,
    );
  });
});

describe('limits of retries', () => {
  it('maxAttempts counts the first attempt too', () => {
    expect(waits({ type: 'fixed', interval: 1, maxAttempts: 1 })).toEqual([]);
    expect(waits({ type: 'fixed', interval: 1, maxAttempts: 2 })).toEqual([1]);
  });

  it('maxAttempts is ten by default', () => {
    expect(waits({ type: 'fixed', interval: 1 })).toHaveLength(9);
    expect(waits({ type: 'series', intervals: [1] })).toHaveLength(9);
  });

  it('maxAttempts -1 never ends', () => {
    expect(decide({ type: 'fixed', interval: 1, maxAttempts: -1 }, { failures: 1_000_000 })).toBe(NOW + 1);
  });

  it('maxDuration alone lifts the limit on attempts', () => {
    expect(decide({ type: 'fixed', interval: 1, maxDuration: '1h' }, { failures: 5_000 })).toBe(NOW + 1);
  });

  it('maxDuration counts from the first failure of the sequence', () => {
    const policy = { type: 'fixed', interval: '1m', maxDuration: '1h' } as const;
    const since = (ms: number): Partial<FailureFacts> => ({ firstFailedAt: new Date(NOW - ms) });
    expect(decide(policy, since(HOUR - 1))).toBe(NOW + MINUTE);
    expect(decide(policy, since(HOUR))).toBe(NOW + MINUTE);
    expect(decide(policy, since(HOUR + 1))).toBeNull();
  });

  it('retries end with whichever of maxAttempts and maxDuration is reached first', () => {
    const policy = { type: 'fixed', interval: 1, maxDuration: '1h', maxAttempts: 3 } as const;
    expect(decide(policy, { failures: 2 })).toBe(NOW + 1);
    expect(decide(policy, { failures: 3 })).toBeNull();
    expect(decide(policy, { failures: 2, firstFailedAt: new Date(NOW - 2 * HOUR) })).toBeNull();
  });
});

describe('jitter', () => {
  const waited = (jitter: number | boolean, random: number): number =>
    decide({ type: 'fixed', interval: '10s', jitter }, { random: () => random })! - NOW;

  it('jitter takes off at most its share of the delay', () => {
    expect(waited(0.2, 0)).toBe(10_000);
    expect(waited(0.2, 0.5)).toBe(9_000);
    expect(waited(0.2, 1)).toBe(8_000);
    expect(waited(1, 1)).toBe(0);
    expect(waited(true, 1)).toBe(5_000);
    expect(waited(false, 1)).toBe(10_000);
    expect(waited(0, 1)).toBe(10_000);
  });

  it('jitter keeps the wait between (1 - jitter) × delay and delay', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: DAY }),
        fc.double({ min: 0, max: 1, noNaN: true }),
        fc.double({ min: 0, max: 1, noNaN: true, maxExcluded: true }),
        (interval, jitter, random) => {
          const at = decide({ type: 'fixed', interval, jitter }, { random: () => random })! - NOW;
          expect(at).toBeLessThanOrEqual(interval);
          expect(at).toBeGreaterThanOrEqual(Math.floor(interval * (1 - jitter)));
        },
      ),
    );
  });

  it('jitter is random by default', () => {
    const rule = retryRule('here', { type: 'fixed', interval: '1d', jitter: true });
    const { random: _random, ...rest } = facts({});
    const times = Array.from({ length: 20 }, () => decideRetry(rule, rest)?.getTime());
    expect(new Set(times).size).toBeGreaterThan(1);
  });
});

describe('errors that influence retries', () => {
  const policy = { type: 'fixed', interval: '10s', maxAttempts: 3 } as const;
  const withRetryAfter = (retryAfter: unknown): Error => Object.assign(new Error('later'), { retryAfter });

  it('retryAfter as a duration counts from now', () => {
    expect(decide(policy, { error: withRetryAfter('90s') })).toBe(NOW + 90_000);
    expect(decide(policy, { error: withRetryAfter(250) })).toBe(NOW + 250);
    expect(decide(policy, { error: withRetryAfter(0) })).toBe(NOW);
  });

  it('retryAfter as a Date is used unchanged', () => {
    const at = new Date('2025-05-06T00:00:00Z');
    expect(decide(policy, { error: withRetryAfter(at) })).toBe(at.getTime());
  });

  it('jitter does not affect retryAfter', () => {
    const jittered = { ...policy, jitter: 1 } as const;
    expect(decide(jittered, { error: withRetryAfter('90s'), random: () => 0.9 })).toBe(NOW + 90_000);
  });

  it.each(['soon', -5, Number.NaN, null, undefined, {}, new Date(Number.NaN), 1e300])(
    'ignores an unusable retryAfter of %s in favor of the policy',
    (retryAfter) => {
      expect(decide(policy, { error: withRetryAfter(retryAfter) })).toBe(NOW + 10_000);
    },
  );

  it('retryAfter does not lift the limits', () => {
    expect(decide(policy, { error: withRetryAfter('90s'), failures: 3 })).toBeNull();
  });

  it('a FatalError and its subclasses are not retried', () => {
    class NoSuchUser extends FatalError {}
    const endless = { type: 'fixed', interval: 1, maxAttempts: -1 } as const;
    expect(decide(endless, { error: new FatalError('no') })).toBeNull();
    expect(decide(endless, { error: new NoSuchUser('no') })).toBeNull();
    expect(decide(endless, { error: Object.assign(new FatalError('no'), { retryAfter: '1s' }) })).toBeNull();
  });

  it.each(['text', 5, null, undefined, Symbol('odd')])('any other thrown value is retried (%s)', (error) => {
    expect(decide(policy, { error })).toBe(NOW + 10_000);
  });
});

describe('any retry policy and any number of failures', () => {
  const intervals = fc.oneof(fc.integer({ min: 0, max: 30 * DAY }), fc.constantFrom('0s', '1m', '7d'));
  const limits = { maxAttempts: fc.constant(-1), jitter: fc.option(fc.boolean(), { nil: undefined }) };
  const policies = fc.oneof(
    fc.record({ type: fc.constantFrom('fixed', 'linear'), interval: intervals, ...limits }),
    fc.record({
      type: fc.constant('exponential'),
      min: intervals,
      max: fc.constant('31d'),
      factor: fc.double({ min: 1, max: 1e300, noNaN: true }),
      ...limits,
    }),
    fc.record({
      type: fc.constant('series'),
      intervals: fc.array(intervals, { minLength: 1, maxLength: 5 }),
      ...limits,
    }),
  );

  it('the next retry is a valid date that is not in the past', () => {
    fc.assert(
      fc.property(policies, fc.integer({ min: 1, max: 10_000 }), (policy, failures) => {
        const given = Object.entries(policy).filter(([, value]) => value !== undefined);
        const at = decide(Object.fromEntries(given) as unknown as RetryPolicy, { failures });
        expect(at).not.toBeNaN();
        expect(at).toBeGreaterThanOrEqual(NOW);
      }),
    );
  });
});

describe('rejected retry policies', () => {
  it.each<[string, unknown, string]>([
    ['no object', 'fixed', 'retryPolicy must be an object such as'],
    ['null', null, 'retryPolicy must be an object such as'],
    ['no type', {}, 'type must be one of fixed, linear, exponential, series, cron, got undefined'],
    ['a wrong type', { type: 'exponentiel' }, 'Did you mean "exponential"?'],
    ['an unknown key', { type: 'fixed', interval: 1, intervall: 2 }, 'unknown option "intervall"'],
    ["another policy's key", { type: 'fixed', interval: 1, factor: 2 }, 'unknown option "factor"'],
    ['no interval', { type: 'fixed' }, 'interval must be a duration'],
    ['a wrong interval', { type: 'linear', interval: 'soon' }, 'interval must be a duration'],
    ['a negative interval', { type: 'fixed', interval: -1 }, 'interval must be a duration'],
    ['no intervals', { type: 'series' }, 'intervals must be a list'],
    ['an empty series', { type: 'series', intervals: [] }, 'intervals must be a list'],
    ['a wrong item', { type: 'series', intervals: ['1m', 'x'] }, 'intervals[1] must be a duration'],
    [
      'max below min',
      { type: 'exponential', min: '1m', max: '1s' },
      'max ("1s") must not be less than min ("1m")',
    ],
    ['a factor below 1', { type: 'exponential', factor: 0.5 }, 'factor must be a number of at least 1'],
    ['an endless factor', { type: 'exponential', factor: Infinity }, 'factor must be a number'],
    ['a factor in words', { type: 'exponential', factor: '2' }, 'factor must be a number'],
    ['no expression', { type: 'cron' }, 'cron must be a string'],
    ['a wrong expression', { type: 'cron', expression: '* * *' }, 'cron needs 5 fields'],
    [
      'a wrong zone',
      { type: 'cron', expression: '* * * * *', timezone: 'X' },
      'timezone must be an IANA name',
    ],
    ['no attempts', { type: 'fixed', interval: 1, maxAttempts: 0 }, 'maxAttempts (or -1 for unlimited)'],
    ['-2 attempts', { type: 'fixed', interval: 1, maxAttempts: -2 }, 'maxAttempts'],
    ['half an attempt', { type: 'fixed', interval: 1, maxAttempts: 1.5 }, 'must be a whole number'],
    ['no duration', { type: 'fixed', interval: 1, maxDuration: 0 }, 'maxDuration must be a duration'],
    [
      'too much jitter',
      { type: 'fixed', interval: 1, jitter: 1.1 },
      'jitter must be true, false or a number',
    ],
    [
      'jitter in words',
      { type: 'fixed', interval: 1, jitter: 'some' },
      'jitter must be true, false or a number',
    ],
    [
      'resetRetriesOnDataChange',
      { type: 'fixed', interval: 1, resetRetriesOnDataChange: true },
      'resetRetriesOnDataChange is for reactive tasks',
    ],
  ])('rejects a retry policy with %s', (_what, policy, message) => {
    expect(() => retryRule('enqueue', policy as RetryPolicy)).toThrow(OptionError);
    expect(() => retryRule('enqueue', policy as RetryPolicy)).toThrow(message);
    expect(() => retryRule('enqueue', policy as RetryPolicy)).toThrow(/^enqueue: retryPolicy/);
  });
});
