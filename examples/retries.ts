// runs in: npm run check
//
// What happens when a handler throws: policies, errors that are final, errors that say when to come back. On a virtual
// clock, so an hour takes no time and every delay can be asserted.
import assert from 'node:assert/strict';
import { FatalError, Tidemill } from 'tidemill';
import { memory } from 'tidemill/memory';
import { virtualClock } from 'tidemill/testing';

const clock = virtualClock('2026-03-01T12:00:00Z');
const mill = new Tidemill({ store: memory({ clock }), logger: false });

/** Seconds since noon at which each name was tried. */
const tried: Record<string, number[]> = {};
function note(name: string): number {
  const at = Math.round((clock.now() - Date.UTC(2026, 2, 1, 12)) / 1000);
  (tried[name] ??= []).push(at);
  return tried[name].length;
}

// Without a policy: 2 s, 4 s, 8 s … up to a day, ten attempts in all.
mill.job('default', () => {
  if (note('default') < 4) throw new Error('not yet');
});

// Three attempts, always ten seconds apart; then the job is `failed`.
mill.job('fixed', { retryPolicy: { type: 'fixed', interval: '10s', maxAttempts: 3 } }, () => {
  note('fixed');
  throw new Error('never works');
});

// The last interval of a series repeats.
mill.job('series', { retryPolicy: { type: 'series', intervals: ['1s', '1m'] } }, () => {
  if (note('series') < 4) throw new Error('not yet');
});

// Trying again is pointless, and the handler knows it.
mill.job('fatal', () => {
  note('fatal');
  throw new FatalError('this address does not exist');
});

// The other side said when: `retryAfter` is a duration or a Date, on any error.
mill.job('polite', () => {
  if (note('polite') === 1) throw Object.assign(new Error('429 Too Many Requests'), { retryAfter: '90s' });
});

const jobs = await mill.enqueueMany(
  ['default', 'fixed', 'series', 'fatal', 'polite'].map((name) => ({ name })),
);
await mill.start();
await clock.advance('1h');

assert.deepEqual(tried, {
  default: [0, 2, 6, 14],
  fixed: [0, 10, 20],
  series: [0, 1, 61, 121],
  fatal: [0],
  polite: [0, 90],
});

const { failed, completed } = await mill.jobs.stats();
assert.deepEqual({ failed, completed }, { failed: 2, completed: 3 });

// A failed job keeps why, and every attempt; `retry` starts a fresh sequence of attempts.
const fixed = await mill.jobs.get(jobs[1]!.id);
assert.equal(fixed?.failReason, 'never works');
assert.equal(fixed.history?.length, 3);
assert.equal((await mill.jobs.retry(fixed.id)).outcome, 'retried');
await clock.advance('1m');
assert.equal(tried['fixed'].length, 6);

await mill.stop();
console.log('tried at, in seconds:', tried);
