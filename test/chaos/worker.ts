/** A worker process that records what it does. Arguments: address, effects log, lease in milliseconds. */
import { Tidemill } from '../../src/index.js';
import { takeDetours } from './detour.js';
import { random, sleep } from './chaos-database.js';
import { writeLine } from './journal.js';
import { BREAKERS, defineShared, isLimited, LIMITED, LIMITED_NAMES } from './limited.js';
import { workerDatabaseAt } from './worker-database.js';
import { live } from './worker-life.js';

const [address = '', file = '', leaseMs = '2000'] = process.argv.slice(2);
const database = workerDatabaseAt(takeDetours(address));
/** One transaction in this many finds the pool without a free connection. */
const USES_UP = 40;
const mill = new Tidemill({
  store: database.store,
  leaseDuration: Number(leaseMs),
  logger: false,
  retention: { completed: '1h' },
});

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

/** By id: the server's time of the claim under which a job with limits runs. */
const claims = new Map<string, number>();
mill.on('job:start', ({ job }) => {
  if (isLimited(job.name)) claims.set(job.id, job.lockedAt?.getTime() ?? NaN);
});

defineShared(mill);
for (const name of LIMITED_NAMES) {
  mill.job<Work & { readonly key: string }>(
    name,
    {
      concurrency: 8,
      retryPolicy: patient,
      limits: LIMITED[name],
      ...(BREAKERS[name] === undefined ? {} : { breaker: BREAKERS[name] }),
    },
    async ({ id, attempt, data, failCount }) => {
      const line = { id, attempt, name, limitKey: data.key, claimedAt: claims.get(id) ?? NaN };
      writeLine(file, { what: 'start', ...line });
      await sleep(data.ms);
      writeLine(file, { what: 'end', ...line });
      if (failCount < data.failures && Math.random() < 0.5) throw new Error('on purpose');
    },
  );
}

mill.job<Work>('exact', { concurrency: 8, retryPolicy: patient }, (job) =>
  database.exactly(async (transaction, effect) => {
    await effect(job.id);
    writeLine(file, { what: 'inside', id: job.id });
    process.send?.('inside');
    try {
      if (random(USES_UP) === 0) useUp();
      await sleep(job.data.ms * 4);
      await job.complete({ transaction });
    } finally {
      writeLine(file, { what: 'outside', id: job.id });
    }
  }),
);

function useUp(): void {
  if (database.useUp === undefined) return;
  writeLine(file, { what: 'used up' });
  void database.useUp();
}

/** Has completed its job but never ends its transaction. */
mill.job<Work>('hostage', { retryPolicy: patient }, (job) =>
  database.exactly(async (transaction, effect) => {
    await effect(job.id);
    await job.complete({ transaction });
    writeLine(file, { what: 'start', id: job.id, attempt: job.attempt });
    await sleep(job.data.ms);
  }),
);

mill.on('job:complete', ({ job }) => writeLine(file, { what: 'settled', id: job.id }));
// Only the end of the instance's own lease excuses a second holder; without it, an outcome must not be refused.
mill.on('lease:lost', ({ reason }) => {
  if (!reason.startsWith('its outcome')) writeLine(file, { what: 'lost' });
});

await live(mill, file, () => database.close());
