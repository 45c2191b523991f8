import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  detailPath,
  inWords,
  ORDERS,
  orderOf,
  isNarrowed,
  readFilter,
  workPath,
  writeFilter,
  writeTarget,
} from '../../dashboard/src/filter.js';

const read = (query: string): ReturnType<typeof readFilter> =>
  readFilter(new URLSearchParams(query), ['jobs', 'tasks']);

describe('the filter of the work list', () => {
  it('a filter survives the round trip through the URL, whatever is typed into it', () => {
    const text = fc.string();
    const some = fc.array(text);
    const filters = fc.record({
      names: some,
      statuses: some,
      error: text,
      fields: some,
      from: text,
      to: text,
    });
    fc.assert(
      fc.property(filters, (parts) => {
        const filter = { ...read('kind=tasks'), ...parts };
        const { time, ...again } = read(writeFilter(filter).toString());
        expect({ ...again, time: '' }).toEqual(filter);
        expect(time).toBe(parts.from === '' && parts.to === '' ? '' : 'createdAt');
      }),
    );
  });

  it('an unknown kind in the URL falls back to the first known kind', () => {
    expect(read('kind=__proto__').kind).toBe('jobs');
    expect(read('').kind).toBe('jobs');
  });

  it('a bulk action ignores cursor, order and limit of the filter', () => {
    const filter = read('kind=jobs&status=failed&sort=dueAt&order=asc&cursor=abc&limit=5');
    expect(writeTarget(filter).toString()).toBe('status=failed');
    expect(isNarrowed(filter)).toBe(true);
    expect(isNarrowed(read('kind=jobs&sort=dueAt&order=asc'))).toBe(false);
  });

  it('a filter describes itself in words', () => {
    expect(inWords(read('name=a&name=b&status=failed&error=no+route&field=to.id:5&from=2026-01-01'))).toBe(
      'named a or b, in status failed, whose error contains “no route”, where to.id is 5, with createdAt from 2026-01-01',
    );
    expect(inWords(read('kind=jobs'))).toBe('');
  });

  it('URLs escape names and ids', () => {
    expect(workPath('jobs', { names: ['a&b=c'] })).toBe('work?kind=jobs&name=a%26b%3Dc');
    expect(detailPath('jobs', 'schedule:a/b?c')).toBe('work/jobs/schedule%3Aa%2Fb%3Fc');
  });
});

describe('the order of the list', () => {
  it.each([
    ['kind=jobs', 'createdAt desc'],
    ['kind=tasks', 'dueAt desc'],
    ['kind=documents', 'dueAt asc'],
    ['kind=tasks&order=asc', 'dueAt asc'],
    ['kind=documents&sort=dueAt&order=desc', 'dueAt desc'],
    ['kind=jobs&sort=updatedAt', 'updatedAt desc'],
  ])('of %s reads as %s', (query, order) => {
    expect(orderOf(read(query))).toBe(order);
    expect(ORDERS[read(query).kind].map(([value]) => value)).toContain(order);
  });
});
