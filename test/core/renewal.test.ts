import { describe, expect, it } from 'vitest';
import { keepRenewed, retryAfter } from '../../src/core/renewal.js';
import { virtualClock } from '../../src/testing/virtual-clock.js';

describe('renewal', () => {
  const times = async (
    answers: readonly boolean[],
    options: { leaseMs: number; mostRetryMs?: number },
  ): Promise<number[]> => {
    const clock = virtualClock();
    const began = clock.monotonic();
    const over = new AbortController();
    const seen: number[] = [];
    const renew = (): Promise<boolean> => {
      seen.push(clock.monotonic() - began);
      if (seen.length === answers.length) over.abort();
      return Promise.resolve(answers[seen.length - 1] as boolean);
    };
    const kept = keepRenewed({ clock, renew, ...options }, over.signal);
    await clock.advance(10 * options.leaseMs);
    await kept;
    return seen;
  };

  it('renews a lease three times per duration', async () => {
    expect(await times([true, true, true], { leaseMs: 30_000 })).toEqual([10_000, 20_000, 30_000]);
  });

  it('repeats a failed renewal after 500 ms, then renews at the usual interval again', async () => {
    expect(await times([false, false, true, true], { leaseMs: 30_000 })).toEqual([
      10_000, 10_500, 11_000, 21_000,
    ]);
  });

  it('repeats the failed renewal of a short lease sooner', async () => {
    expect(retryAfter(3_000)).toBe(300);
    expect(await times([false, true], { leaseMs: 3_000 })).toEqual([1_000, 1_300]);
  });

  it('waits up to the given time before it repeats a failed renewal', async () => {
    expect(await times([false, true], { leaseMs: 30_000, mostRetryMs: 1_000 })).toEqual([10_000, 11_000]);
  });
});
