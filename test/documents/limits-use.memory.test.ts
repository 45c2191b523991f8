import { describe, expect, it } from 'vitest';
import { Tidemill, type DocumentOptions } from '../../src/index.js';
import { memory } from '../../src/memory/index.js';
import { virtualClock } from '../../src/testing/index.js';

/** Runs documents on mills of one cluster in virtual time, and measures from the outside. */
async function measure(mills: number, options: Partial<DocumentOptions>, runMs: number, untilMs: number) {
  const clock = virtualClock();
  const store = memory({ clock });
  const seen = { running: 0, most: 0, busyMs: 0, starts: [] as number[] };
  const documents = store.collection('reminders');
  for (let at = 0; at < 500; at += 1) documents.insert({ sleepUntil: new Date(clock.now() - 1_000) });
  const all = Array.from({ length: mills }, () => new Tidemill({ store, logger: false }));
  for (const mill of all)
    mill.documents({
      collection: 'reminders',
      concurrency: 10,
      ...options,
      onDocument: async () => {
        seen.running += 1;
        seen.most = Math.max(seen.most, seen.running);
        seen.starts.push(clock.now());
        await new Promise<void>((resolve) => clock.timer(runMs, resolve));
        seen.busyMs += runMs;
        seen.running -= 1;
      },
    });
  await Promise.all(all.map((mill) => mill.start()));
  const began = clock.now();
  await clock.advance(untilMs);
  const result = { ...seen, tookMs: clock.now() - began };
  const stops = Promise.all(all.map((mill) => mill.stop({ timeout: 0 })));
  await clock.advance('30s');
  await stops;
  return result;
}

describe('use of the limits of document schedules (memory)', () => {
  it.each([1, 2])('uses a concurrency above 95 percent by %i mills', async (mills) => {
    const { most, busyMs, tookMs } = await measure(mills, { limits: { concurrency: 3 } }, 200, 6_000);
    expect(most).toBe(3);
    expect(busyMs / (3 * tookMs)).toBeGreaterThan(0.95);
  });

  it.each([1, 2])('uses a rate above 95 percent by %i mills, and never exceeds it', async (mills) => {
    const limits = { rate: { limit: 20, per: '1s', burst: 2 } } as const;
    const { starts, tookMs } = await measure(mills, { limits }, 10, 4_000);
    expect(starts.length / (tookMs / 50)).toBeGreaterThan(0.95);
    const inWindow = (at: number): number => starts.filter((one) => one >= at && one < at + 1_000).length;
    for (const at of starts) expect(inWindow(at)).toBeLessThanOrEqual(20);
  });
});
