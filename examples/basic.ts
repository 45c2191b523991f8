// runs in: npm run check
//
// The quick start of README.md, on a MongoDB replica set that this file starts and stops itself. The last lines hold
// the two together: what stands between the markers stands in the README as well.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { startMongo } from '@tidemill/servers';

await using server = await startMongo();
const uri = server.uri.replace('/?', '/app?');

// README: from here
import { Tidemill } from 'tidemill';
import { mongodb } from 'tidemill/mongodb';

const mill = new Tidemill({ store: mongodb({ uri }) });

const sendEmail = mill.job<{ to: string }>('send-email', { concurrency: 10 }, async (job) => {
  job.log('sending');
  return `sent to ${job.data.to}`;
});
mill.job('daily-report', async (job) => job.log(`report for ${String(job.scheduledFor)}`));

await mill.start();

const job = await sendEmail.enqueue({ to: 'ada@example.com' }, { uniqueKey: 'welcome-ada' });
const result = await mill.jobs.result(job.id, { timeout: '10s' });
console.log(result); // sent to ada@example.com

await mill.schedule('0 3 * * *', 'daily-report', {}, { timezone: 'Europe/Prague' });

process.once('SIGTERM', () => void mill.stop());
// README: to here

assert.equal(job.outcome, 'created');
assert.equal(result, 'sent to ada@example.com');
assert.equal((await mill.jobs.get(job.id))?.status, 'completed');
const [next] = await mill.schedules.next('daily-report', 1);
assert.match(String(next?.toISOString()), /T0[12]:00:00/u, 'three in the morning in Prague');
await mill.stop();

const own = readFileSync(import.meta.filename, 'utf8').split(/^\/\/ README: .*$/mu)[1];
const readme = readFileSync(new URL('../README.md', import.meta.url), 'utf8');
assert.ok(own !== undefined && readme.includes(own.trim()), 'the quick start of README.md differs');
