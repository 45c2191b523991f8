import { expect, it } from 'vitest';
import { OutageGrace } from '../../src/documents/run/outage-grace.js';
import { virtualClock, type VirtualClock } from '../../src/testing/index.js';

const LOCK_MS = 60_000;

function aGrace(lockMs = LOCK_MS): { readonly clock: VirtualClock; readonly grace: OutageGrace } {
  const clock = virtualClock('2026-03-02T12:00:00.000Z');
  return { clock, grace: new OutageGrace(clock, lockMs) };
}

/** The store fails to answer for a while, after it has answered. */
async function outage({ clock, grace }: ReturnType<typeof aGrace>, ms: number): Promise<void> {
  grace.answered('a read');
  grace.failed('a read');
  await clock.advance(ms);
  grace.answered('a read');
}

it('makes no document late in normal operation, however seldom a scheduler looks', async () => {
  const { clock, grace } = aGrace();
  for (const waitMs of [100, 1_000, 600_000]) {
    await clock.advance(waitMs);
    grace.answered('a read');
    grace.wasLate(50);
    expect(grace.isInDoubt).toBe(false);
  }
});

it('makes no document late after an outage too short to end a lock', async () => {
  const bench = aGrace();
  await outage(bench, LOCK_MS / 2 - 1);
  expect(bench.grace.leftMs).toBe(0);
});

it('leaves documents to their holders for a lock duration, 30 s at most, after an outage that may end locks', async () => {
  for (const [lockMs, graceMs] of [
    [LOCK_MS, 30_000],
    [10_000, 10_000],
  ] as const) {
    const bench = aGrace(lockMs);
    await outage(bench, lockMs / 2);
    expect(bench.grace.leftMs).toBe(graceMs);
    await bench.clock.advance(graceMs);
    expect(bench.grace.isInDoubt).toBe(false);
  }
});

it('begins the wait anew if the store is gone again before it has ended', async () => {
  const bench = aGrace();
  await outage(bench, LOCK_MS);
  await bench.clock.advance(10_000);
  await outage(bench, 25_000);
  expect(bench.grace.leftMs).toBe(30_000);
});

it('counts an outage of writes alone by the last write', async () => {
  const { clock, grace } = aGrace();
  await clock.advance(LOCK_MS);
  grace.answered('a read');
  grace.failed('a write');
  grace.answered('a read');
  expect(grace.leftMs).toBe(30_000);
});

it('gives the same time after the process stood still', () => {
  const { grace } = aGrace();
  grace.wasLate(LOCK_MS);
  expect(grace.leftMs).toBe(30_000);
});

it('never waits without locks', async () => {
  const bench = aGrace(0);
  await outage(bench, 600_000);
  bench.grace.wasLate(600_000);
  expect(bench.grace.isInDoubt).toBe(false);
});
