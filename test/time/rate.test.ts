import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { givenBack, grantStarts, NO_STARTS, type RateLimit, type RateState } from '../../src/time/rate.js';

const rates = fc
  .record({ limit: fc.integer({ min: 1, max: 200 }), perMs: fc.integer({ min: 10, max: 100_000 }) })
  .chain(({ limit, perMs }) =>
    fc.integer({ min: 1, max: limit }).map((burst): RateLimit => ({ limit, perMs, burst })),
  );

/** The most starts in any window of `perMs`; a start exactly `perMs` later is in the next window. */
function mostInAWindow(starts: readonly number[], perMs: number): number {
  const sorted = [...starts].sort((a, b) => a - b);
  let first = 0;
  let most = 0;
  for (const [at, time] of sorted.entries()) {
    while ((sorted[first] ?? 0) <= time - perMs) first += 1;
    most = Math.max(most, at - first + 1);
  }
  return most;
}

describe('a rate', () => {
  it('never has more starts in a window than its limit, however late claims come and whatever is given back', () => {
    const steps = fc.array(
      fc.record({
        afterShare: fc.double({ min: 0, max: 0.4, noNaN: true }),
        wanted: fc.integer({ min: 1, max: 60 }),
        withinShare: fc.double({ min: 0, max: 0.2, noNaN: true }),
        used: fc.double({ min: 0, max: 1, noNaN: true }),
        late: fc.double({ min: 0, max: 1, noNaN: true }),
      }),
      { maxLength: 60 },
    );
    fc.assert(
      fc.property(rates, steps, (rate, plan) => {
        let state: RateState = NO_STARTS;
        let now = 1_000_000;
        const starts: number[] = [];
        for (const { afterShare, wanted, withinShare, used, late } of plan) {
          now += Math.round(afterShare * rate.perMs);
          const withinMs = Math.round(withinShare * rate.perMs);
          const grant = grantStarts(state, rate, { wanted, now, withinMs });
          const started = Math.round(grant.granted * used);
          for (let n = 0; n < started; n += 1) starts.push(now + Math.floor(late * withinMs));
          state = givenBack(grant.state, rate, [{ end: grant.end, count: grant.granted - started }]);
        }
        expect(mostInAWindow(starts, rate.perMs)).toBeLessThanOrEqual(rate.limit);
      }),
    );
  });

  it('is used to more than 95 % by a claimer that comes when it may, and a little late', () => {
    const late = fc.double({ min: 0, max: 1, noNaN: true });
    const busy = fc.record({
      limit: fc.integer({ min: 1, max: 500 }),
      perMs: fc.integer({ min: 1_000, max: 60_000 }),
      share: fc.double({ min: 0, max: 1, noNaN: true }),
    });
    fc.assert(
      fc.property(
        busy,
        fc.array(late, { minLength: 5, maxLength: 20 }),
        ({ limit, perMs, share }, lateness) => {
          const rate = { limit, perMs, burst: 1 + Math.floor(share * (limit - 1)) };
          const withinMs = Math.floor(perMs * 0.01);
          const windows = 12;
          let state: RateState = NO_STARTS;
          let count = 0;
          let now = 5_000_000;
          const end = now + windows * perMs;
          for (let turn = 0; now < end; turn += 1) {
            const grant = grantStarts(state, rate, { wanted: limit, now, withinMs });
            state = grant.state;
            count += grant.granted;
            now =
              Math.max(grant.freeAt, now + 1) +
              Math.floor((lateness[turn % lateness.length] ?? 0) * Math.min(40, perMs * 0.004));
          }
          // The first window is full at its beginning.
          expect(count / (limit * windows)).toBeGreaterThan(0.95);
        },
      ),
      { numRuns: 60 },
    );
  });

  it('spreads starts evenly but for its burst', () => {
    const rate = { limit: 10, perMs: 1_000, burst: 3 };
    const at = (state: RateState, now: number) => grantStarts(state, rate, { wanted: 10, now, withinMs: 0 });
    const first = at(NO_STARTS, 10_000);
    expect(first.granted).toBe(3);
    const second = at(first.state, 10_050);
    expect(second.granted).toBe(1);
    expect(at(second.state, 10_060)).toMatchObject({ granted: 0, freeAt: 10_150 });
  });

  it('says when the next start may be granted, and grants it then', () => {
    fc.assert(
      fc.property(rates, fc.integer({ min: 1, max: 300 }), (rate, wanted) => {
        const { state, freeAt } = grantStarts(NO_STARTS, rate, { wanted, now: 1_000, withinMs: 0 });
        expect(grantStarts(state, rate, { wanted: 1, now: Math.ceil(freeAt), withinMs: 0 }).granted).toBe(1);
      }),
    );
  });

  it('gives a start back once, however often it is asked', () => {
    const rate = { limit: 4, perMs: 1_000, burst: 4 };
    const grant = grantStarts(NO_STARTS, rate, { wanted: 3, now: 1_000, withinMs: 0 });
    const unused = [{ end: grant.end, count: 2 }];
    const state = givenBack(givenBack(grant.state, rate, unused), rate, unused);
    expect(state.starts).toEqual([]);
    expect(grantStarts(state, rate, { wanted: 9, now: 1_000, withinMs: 0 }).granted).toBe(4);
  });
});
