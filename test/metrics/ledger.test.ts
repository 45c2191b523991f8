import { describe, expect, it, vi } from 'vitest';
import { readHistogram } from '../../src/metrics/histogram.js';
import { growth, Counters, MOST_NAMES, OTHERS, OWN_SERIES } from '../../src/metrics/counters.js';
import { MINUTE_MS } from '../../src/store/metrics.js';

const NOON = Date.parse('2026-01-01T12:00:00Z');
const aLedger = (stirred = (): void => undefined): Counters => new Counters([10, 100, 1_000], stirred);

describe('counters', () => {
  it('counts waits, runs and outcomes by kind and name', () => {
    const counters = aLedger();
    counters.enqueued('mail', 3);
    counters.began('job', 'mail', NOON, NOON + 5);
    counters.began('job', 'mail', NOON, NOON + 50);
    counters.began('job', 'mail', NOON + 60, NOON + 55);
    counters.ended('job', 'mail', 'completed', NOON + 60, 10);
    counters.ended('job', 'mail', 'retried', NOON + 60, 5_000);
    counters.ended('task', 'mail', 'skipped', NOON + 60, 3);
    counters.reclaimed('task', 'mail');
    counters.lost('job', 'mail');
    counters.planned(7);
    expect(Object.fromEntries(counters.counts())).toEqual({
      [OWN_SERIES]: { plannedBatches: 1, plannedChanges: 7 },
      'job:mail': {
        enqueued: 3,
        completed: 1,
        retried: 1,
        lost: 1,
        'wait:10': 2,
        'wait:100': 1,
        waitMs: 55,
        'success:10': 1,
        successMs: 10,
        'failure:inf': 1,
        failureMs: 5_000,
      },
      'task:mail': { skipped: 1, reclaimed: 1 },
    });
  });

  it('leaves an attempt without a duration out of the durations', () => {
    const counters = aLedger();
    counters.ended('job', 'mail', 'failed', NOON);
    expect(counters.counts().get('job:mail')).toEqual({ failed: 1 });
    expect(counters.takeMinutes()[0]?.cells[0]).toMatchObject({ failed: 1, runMsSum: 0 });
  });

  it('returns each minute as a whole when it grows, and nothing while nothing happens', () => {
    const stirred = vi.fn();
    const counters = aLedger(stirred);
    expect(counters.takeMinutes()).toEqual([]);
    counters.began('job', 'mail', NOON, NOON + 1);
    counters.ended('job', 'mail', 'completed', NOON + 2, 1);
    expect(stirred).toHaveBeenCalledTimes(1);
    expect(counters.takeMinutes()).toMatchObject([{ at: new Date(NOON), cells: [{ started: 1, done: 1 }] }]);
    expect(counters.takeMinutes()).toEqual([]);
    counters.ended('job', 'mail', 'completed', NOON + 3, 4);
    counters.ended('job', 'mail', 'failed', NOON + MINUTE_MS, 9);
    expect(stirred).toHaveBeenCalledTimes(2);
    // The first minute as a whole, not only what was added.
    expect(counters.takeMinutes()).toMatchObject([
      { at: new Date(NOON), cells: [{ started: 1, done: 2, runMsSum: 5, runMsMax: 4 }] },
      { at: new Date(NOON + MINUTE_MS), cells: [{ started: 0, done: 0, failed: 1, runMsMax: 9 }] },
    ]);
  });

  it('continues in its minute when the clock is set back', () => {
    const counters = aLedger();
    counters.ended('job', 'mail', 'completed', NOON + MINUTE_MS, 1);
    counters.ended('job', 'mail', 'completed', NOON, 1);
    expect(counters.takeMinutes()).toMatchObject([{ at: new Date(NOON + MINUTE_MS), cells: [{ done: 2 }] }]);
  });

  it('counts names beyond the limit together', () => {
    const counters = aLedger();
    for (let n = 0; n < MOST_NAMES + 5; n += 1) counters.enqueued(`name-${String(n)}`, 1);
    expect(counters.counts().size).toBe(MOST_NAMES + 1);
    expect(counters.counts().get(`job:${OTHERS}`)).toEqual({ enqueued: 5 });
  });

  it('returns the growth between two counts', () => {
    const counters = aLedger();
    counters.enqueued('mail', 1);
    counters.enqueued('report', 1);
    const before = counters.counts();
    counters.enqueued('mail', 2);
    counters.lost('job', 'other');
    expect(growth(counters.counts(), before)).toEqual(
      new Map([
        ['job:mail', { enqueued: 2 }],
        ['job:other', { lost: 1 }],
      ]),
    );
    expect(growth(counters.counts(), counters.counts()).size).toBe(0);
  });
});

describe('histograms', () => {
  it('reads a histogram with other buckets than it was written with, and loses no value', () => {
    const fields = { 'wait:10': 1, 'wait:100': 2, 'wait:inf': 4, waitMs: 9_000, 'success:10': 8 };
    expect(readHistogram('wait', fields, [50, 100])).toEqual({ upTo: [1, 3], count: 7, sumMs: 9_000 });
  });
});
