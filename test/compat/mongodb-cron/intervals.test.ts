/** The run times of intervals, by cron-parser 4.9, which mongodb-cron reads them with, and by ours. */
import fc from 'fast-check';
import { beforeAll, describe, expect, it } from 'vitest';
import { asCronReadsIt } from '../../../src/compat/mongodb-cron/readings.js';
import { parseInterval } from '../../../src/time/interval.js';
import { original } from '../originals.js';

interface Parser {
  parseExpression(text: string, options: { currentDate: Date; tz: string }): { next(): { toDate(): Date } };
}

let parser: Parser;
beforeAll(async () => {
  parser = await original<Parser>('cron-parser');
});

const ours = (text: string, after: Date): Date | null => {
  const { interval } = asCronReadsIt({ id: 1, interval: text });
  return parseInterval('test', interval, 'UTC').from(after).next(after);
};

const theirs = (text: string, after: Date): Date =>
  parser.parseExpression(text, { currentDate: after, tz: 'UTC' }).next().toDate();

const dates = fc.date({ min: new Date('2020-01-01'), max: new Date('2040-01-01'), noInvalidDate: true });

const number = (min: number, max: number): fc.Arbitrary<string> =>
  fc.integer({ min, max }).map((value) => String(value));

const field = (min: number, max: number): fc.Arbitrary<string> => {
  const range = fc
    .tuple(fc.integer({ min, max }), fc.integer({ min, max }))
    .map((ends) => ends.toSorted((a, b) => a - b).join('-'));
  const step = fc.integer({ min: 1, max: Math.floor(max / 2) }).map((every) => `*/${String(every)}`);
  const list = fc.array(number(min, max), { minLength: 2, maxLength: 4 }).map((values) => values.join());
  return fc.oneof({ weight: 4, arbitrary: fc.constant('*') }, number(min, max), range, step, list);
};

/** Days that every month has, so that some date always matches. */
const fields = [field(0, 59), field(0, 59), field(0, 23), field(1, 28), field(1, 12), field(0, 6)] as const;

describe('intervals of mongodb-cron', () => {
  it('come due at the same times, whatever number of fields they have', () => {
    const texts = fc
      .tuple(fc.tuple(...fields), fc.integer({ min: 1, max: 6 }))
      .map(([all, count]) => all.slice(6 - count).join(' '));
    fc.assert(
      fc.property(texts, dates, (text, after) => {
        expect(ours(text, after)).toEqual(theirs(text, after));
      }),
      { numRuns: 500 },
    );
  });

  it.each([
    '@yearly',
    '@monthly',
    '@weekly',
    '@daily',
    '@hourly',
    '0 0 * * 7',
    '0 0 L * *',
    '0 9 * * 5L',
    '0 9 * * 1#2',
    '0 0 ? * MON',
    '0 0 1 JAN-MAR *',
    '0 9-17 * * mon-fri',
    '  5   4 * * * ',
  ])('%s comes due at the same times', (text) => {
    for (let month = 0; month < 24; month += 1) {
      const after = new Date(Date.UTC(2026, month, 11, 7, 30, 12));
      expect(ours(text, after)).toEqual(theirs(text, after));
    }
  });
});
