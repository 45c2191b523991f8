/** A worker process that writes down what it does. Arguments: uri, effects log, lease in milliseconds. */
import { MongoClient } from 'mongodb';
import { Tidemill } from '../../src/index.js';
import { mongodb } from '../../src/mongodb/index.js';
import { writeLine } from './journal.js';

const [uri = '', file = '', leaseMs = '2000'] = process.argv.slice(2);
const client = new MongoClient(uri);
const mill = new Tidemill({
  store: mongodb({ client }),
  leaseDuration: Number(leaseMs),
  logger: false,
  retention: { completed: '1h' },
});

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

interface Work {
  readonly ms: number;
  readonly failures: number;
}

const patient = { type: 'fixed', interval: 50, maxAttempts: -1 } as const;

for (const name of ['short', 'long', 'keyed']) {
  mill.job<Work>(name, { concurrency: 8, retryPolicy: patient }, async (job) => {
    const line = {
      id: job.id,
      attempt: job.attempt,
      ...(job.uniqueKey === undefined ? {} : { key: job.uniqueKey }),
    };
    writeLine(file, { what: 'start', ...line });
    await sleep(job.data.ms);
    writeLine(file, { what: 'end', ...line });
    if (job.failCount < job.data.failures && Math.random() < 0.5) throw new Error('on purpose');
  });
}

mill.job<Work>('exact', { concurrency: 4, retryPolicy: patient }, async (job) => {
  await client.withSession((session) =>
    session.withTransaction(
      async () => {
        await client.db().collection<{ job: string }>('effects').insertOne({ job: job.id }, { session });
        await sleep(job.data.ms);
        await job.complete({ transaction: session });
      },
      { writeConcern: { w: 'majority' } },
    ),
  );
});

mill.on('job:complete', ({ job }) => writeLine(file, { what: 'settled', id: job.id }));
// Only the end of the instance's own lease excuses a second holder; a refused outcome is what must not come without it.
mill.on('lease:lost', ({ reason }) => {
  if (!reason.startsWith('its outcome')) writeLine(file, { what: 'lost' });
});

process.on('SIGTERM', () => {
  void mill.stop({ timeout: '5s' }).then(async () => {
    await client.close();
    process.exit(0);
  });
});

async function begin(): Promise<void> {
  try {
    await mill.start();
  } catch {
    // The server may be between two primaries just now.
    await sleep(200);
    await begin();
  }
}
await begin();
