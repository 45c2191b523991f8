// runs in: npm run check
//
// How to test code that uses Tidemill: the memory store with a clock that the test moves. No server, no sleeping.
import assert from 'node:assert/strict';
import { Tidemill } from 'tidemill';
import { memory } from 'tidemill/memory';
import { virtualClock } from 'tidemill/testing';

/** The code under test: a welcome mail at once, a reminder a week later unless it is cancelled. */
function onboarding(mill: Tidemill, send: (text: string) => void) {
  const welcome = mill.job<{ user: string }>('welcome', ({ data }) => send(`welcome ${data.user}`));
  const remind = mill.job<{ user: string }>('remind', ({ data }) => send(`still there, ${data.user}?`));
  return async (user: string) => {
    await welcome.enqueue({ user });
    return remind.enqueue({ user }, { delay: '7d' });
  };
}

const clock = virtualClock('2026-01-01T00:00:00Z');
const sent: string[] = [];
const mill = new Tidemill({ store: memory({ clock }), logger: false });
const signUp = onboarding(mill, (text) => sent.push(`${new Date(clock.now()).toISOString()} ${text}`));

await mill.start();
await signUp('ada');
const reminder = await signUp('grace');
assert.equal((await mill.jobs.cancel(reminder.id)).outcome, 'cancelled');

// Everything that falls due on the way runs, in order, each at its own time.
await clock.advance('6d');
assert.equal(sent.length, 2, 'only the welcomes so far');
await clock.advance('2d');
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
await clock.advance('10s');
assert.equal(await mill.jobs.result(flaky.id), 'done');
assert.equal(attempts, 3);

await mill.stop();
console.log(sent.join('\n'));
