// runs in: npm run check
//
// Recurring jobs: cron texts, time zones, both changes of the clock, pause, run now, preview. On a virtual clock, so
// that a year of them can be looked at.
import assert from 'node:assert/strict';
import { Tidemill } from 'tidemill';
import { memory } from 'tidemill/memory';
import { virtualClock } from 'tidemill/testing';

const clock = virtualClock('2026-03-28T12:00:00Z');
const mill = new Tidemill({ store: memory({ clock }), logger: false });

const runs: string[] = [];
const report = mill.job<{ kind: string }>('report', ({ data, scheduledFor }) => {
  runs.push(`${data.kind} ${String(scheduledFor?.toISOString())}`);
});
await mill.start();

// Half past two every night in Prague. On 29 March clocks go from two to three there: that night it runs at the end of
// the gap, which is 01:00 UTC.
await report.schedule('30 2 * * *', { kind: 'night' }, { timezone: 'Europe/Prague' });
assert.deepEqual(
  (await mill.schedules.next('report', 3)).map((at) => at.toISOString()),
  ['2026-03-29T01:00:00.000Z', '2026-03-30T00:30:00.000Z', '2026-03-31T00:30:00.000Z'],
);
await clock.advance('2d');
assert.deepEqual(runs.splice(0), ['night 2026-03-29T01:00:00.000Z', 'night 2026-03-30T00:30:00.000Z']);

// The same call again changes nothing; another cron text or other data under the same key takes effect. A name may have
// several schedules, told apart by `uniqueKey`.
await report.schedule(
  '@daily',
  { kind: 'daily' },
  { uniqueKey: 'daily', repeatUntil: new Date('2026-04-02') },
);
assert.equal((await mill.schedules.list('report')).length, 2);

// Paused: no run, and none is caught up on afterwards.
await mill.schedules.pause('report');
await clock.advance('1d');
assert.deepEqual(runs.splice(0), ['daily 2026-03-31T00:00:00.000Z']);

// One run at once, paused or not.
const { outcome } = await mill.schedules.runNow('report');
assert.equal(outcome, 'due');
await clock.advance('1s');
assert.deepEqual(runs.splice(0), ['night 2026-03-31T12:00:00.000Z']);

const resumed = await mill.schedules.resume('report');
assert.equal(resumed.nextRunAt?.toISOString(), '2026-04-01T00:30:00.000Z');
await clock.advance('2d');
assert.deepEqual(runs.splice(0), [
  'daily 2026-04-01T00:00:00.000Z',
  'night 2026-04-01T00:30:00.000Z',
  'daily 2026-04-02T00:00:00.000Z',
  'night 2026-04-02T00:30:00.000Z',
]);

// `repeatUntil` is inclusive, and the schedule has ended with that run.
assert.equal((await mill.schedules.get('report', 'daily'))?.status, 'completed');
// The next run of whichever schedule comes first.
assert.equal((await mill.schedules.next(1))[0]?.name, 'report');
assert.equal(await mill.schedules.remove('report'), true);

await mill.stop();
console.log('schedules: every run came at its time');
