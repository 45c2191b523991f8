// runs in: npm run check
//
// How to test code that uses Tidemill: a mill in memory that runs what the test tells it to, on a clock that the test moves. No server, no sleeping.
import assert from 'node:assert/strict';
import type { Store, Tidemill } from 'tidemill';
import { testMill } from 'tidemill/testing';

/** The code under test: a welcome mail at once, a reminder a week later unless it is cancelled. */
function onboarding<S extends Store>(mill: Tidemill<S>, send: (text: string) => void) {
  const welcome = mill.job<{ user: string }>('welcome', ({ data }) => send(`welcome ${data.user}`));
  const remind = mill.job<{ user: string }>('remind', ({ data }) => send(`still there, ${data.user}?`));
  return async (user: string) => {
    await welcome.enqueue({ user });
    return remind.enqueue({ user }, { delay: '7d' });
  };
}

const mill = testMill({ now: '2026-01-01T00:00:00Z' });
const sent: string[] = [];
const signUp = onboarding(mill, (text) => sent.push(`${new Date(mill.clock.now()).toISOString()} ${text}`));

await signUp('ada');
const reminder = await signUp('grace');
await mill.expectEnqueued('remind', { user: 'ada' }, { times: 1, runAt: new Date('2026-01-08T00:00:00Z') });
assert.equal((await mill.jobs.cancel(reminder.id)).outcome, 'cancelled');

// Nothing has run so far: a test mill waits to be told.
assert.equal(sent.length, 0);
await mill.drain();
assert.equal(sent.length, 2, 'the welcomes');

// Everything that falls due on the way runs, in order, each at its own time.
await mill.advance('8d');
assert.equal(sent.length, 3);
assert.match(sent[2]!, /^2026-01-08T00:00:00.* still there, ada\?$/u);

// Retries are as quick to test: this one fails twice, and then works.
let attempts = 0;
mill.job('flaky', () => {
  attempts += 1;
  if (attempts < 3) throw new Error('try again');
  return 'done';
});
const flaky = await mill.enqueue('flaky');
assert.deepEqual(await mill.drain({ scheduled: true }), { completed: 1, failed: 0, retried: 2 });
assert.equal(await mill.jobs.result(flaky.id), 'done');

// Limits hold, and rates follow the clock: each tenant gets one call a second.
const calls: string[] = [];
mill.job<{ tenant: string }>(
  'call-api',
  { limits: { perKey: { key: 'tenant', rate: { limit: 1, per: '1s' } } } },
  ({ data }) => calls.push(data.tenant),
);
for (const tenant of ['acme', 'acme', 'acme', 'zeta']) await mill.enqueue('call-api', { tenant });
await mill.expectEnqueued('call-api', undefined, { key: 'acme', times: 3 });
await mill.runDue();
assert.deepEqual(calls, ['acme', 'zeta']);
await mill.advance('1s');
assert.deepEqual(calls, ['acme', 'zeta', 'acme']);
await mill.drain(); // moves the clock until all due work has run
assert.equal(calls.length, 4);

// Inline, a job runs before its enqueue resolves.
const inline = testMill({ inline: true });
const double = inline.job<{ n: number }>('double', ({ data }) => data.n * 2);
assert.equal((await double.enqueue({ n: 21 })).result, 42);

await mill.stop();
await inline.stop();
console.log(sent.join('\n'));
