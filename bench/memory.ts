/** Runs a million jobs through one process and samples its heap on the way. Takes minutes; run it alone. */
import { startMongo } from '@tidemill/servers';
import { MongoClient } from 'mongodb';
import { Child, inChild } from './lib/child.js';
import { nanos, sinceMs, sleep } from './lib/clock.js';
import { documents } from './lib/documents.js';
import { record } from './lib/report.js';
import { median, round } from './lib/stats.js';

const QUICK = process.argv.includes('--quick');
const JOBS = QUICK ? 50_000 : 1_000_000;
const EVERY = JOBS / 40;
/** Jobs that wait at any time, so that the worker is never idle and the collection grows as it would in production. */
const AHEAD = 40_000;

interface Sample {
  readonly jobs: number;
  readonly heapMb: number;
  readonly rssMb: number;
}

await using server = await startMongo();
const client = await new MongoClient(server.uri).connect();
const base = { uri: server.uri, database: 'memory', contender: 'tidemill', variant: 'tuned100' } as const;
await inChild({ ...base, task: 'fill', jobs: 0 });
const worker = new Child({ ...base, task: 'memory', jobs: JOBS, every: EVERY }, ['--expose-gc']);
try {
  let done = 0;
  worker.on('count', ({ count }) => {
    done = Number(count);
    process.stderr.write(`\r${done} of ${JOBS}`);
  });
  await worker.hear('ready');
  const began = nanos();
  let sent = 0;
  const jobs = client.db(base.database).collection('tidemill_jobs');
  for (const batch of documents(JOBS)) {
    while (sent - done > AHEAD + EVERY) await sleep(20);
    await jobs.insertMany(batch, { ordered: false });
    sent += batch.length;
  }
  const { value: samples } = await worker.hear<{ value: Sample[] }>('result');
  const seconds = sinceMs(began) / 1_000;
  const heap = (from: number, to: number): number =>
    median(samples.slice(samples.length * from, samples.length * to).map(({ heapMb }) => heapMb));
  const summary = {
    jobs: JOBS,
    perSecond: round(JOBS / seconds),
    'heap MB by tenth': Array.from({ length: 10 }, (_, at) => heap(at / 10, (at + 1) / 10)),
    'growth from the second tenth to the last, MB': round(heap(0.9, 1) - heap(0.1, 0.2), 2),
    'greatest resident MB': Math.max(...samples.map(({ rssMb }) => rssMb)),
  };
  console.log(`\n${JSON.stringify(summary, null, 1)}`);
  record('memory', { summary, samples }, QUICK);
} finally {
  worker.kill();
  await client.close();
}
