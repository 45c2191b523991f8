import { expect, it } from 'vitest';
import { OutageGrace } from '../../src/documents/run/outage-grace.js';
import { virtualClock, type VirtualClock } from '../../src/testing/index.js';

const LOCK_MS = 60_000;

function aGrace(lockMs = LOCK_MS): { readonly clock: VirtualClock; readonly grace: OutageGrace } {
  const clock = virtualClock('2026-03-02T12:00:00.000Z');
  return { clock, grace: new OutageGrace(clock, lockMs) };
}

/** The store answers once, then fails to answer for a while. */
async function outage({ clock, grace }: ReturnType<typeof aGrace>, ms: number): Promise<void> {
  grace.answered('a read');
  grace.failed('a read');
  await clock.advance(ms);
  grace.answered('a read');
}

it('delays no document in normal operation, however seldom a scheduler polls', async () => {
  const { clock, grace } = aGrace();
  for (const waitMs of [100, 1_000, 600_000]) {
    await clock.advance(waitMs);
    grace.answered('a read');
    grace.wasLate(50);
    expect(grace.isInDoubt).toBe(false);
  }
});

it('delays no document after an outage too short to end a lock', async () => {
  const fixture = aGrace();
  await outage(fixture, LOCK_MS / 2 - 1);
  expect(fixture.grace.leftMs).toBe(0);
});

it('leaves documents to their holders for a lock duration, at most 30 s, after a long outage', async () => {
  for (const [lockMs, graceMs] of [
    [LOCK_MS, 30_000],
    [10_000, 10_000],
  ] as const) {
    const fixture = aGrace(lockMs);
    await outage(fixture, lockMs / 2);
    expect(fixture.grace.leftMs).toBe(graceMs);
    await fixture.clock.advance(graceMs);
    expect(fixture.grace.isInDoubt).toBe(false);
  }
});

it('restarts the grace period if the store fails again before it has ended', async () => {
  const fixture = aGrace();
  await outage(fixture, LOCK_MS);
  await fixture.clock.advance(10_000);
  await outage(fixture, 25_000);
  expect(fixture.grace.leftMs).toBe(30_000);
});

it('measures an outage of writes alone from the last successful write', async () => {
  const { clock, grace } = aGrace();
  await clock.advance(LOCK_MS);
  grace.answered('a read');
  grace.failed('a write');
  grace.answered('a read');
  expect(grace.leftMs).toBe(30_000);
});

it('grants the same grace period after the process was suspended', () => {
  const { grace } = aGrace();
  grace.wasLate(LOCK_MS);
  expect(grace.leftMs).toBe(30_000);
});

it('grants no grace period if documents are not locked', async () => {
  const fixture = aGrace(0);
  await outage(fixture, 600_000);
  fixture.grace.wasLate(600_000);
  expect(fixture.grace.isInDoubt).toBe(false);
});
