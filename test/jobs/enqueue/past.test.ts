import { expect, it } from 'vitest';
import type { Tidemill } from '../../../src/index.js';
import type { NewJob, Store } from '../../../src/store/port.js';
import { aMill, until } from '../../support/mills.js';
import { eachStore } from '../../support/stores.js';

const at = (day: number): Date => new Date(Date.UTC(2026, 0, day));

const aJob = (id: string, changes: Partial<NewJob> = {}): NewJob => ({
  id,
  ownId: true,
  name: 'send',
  data: { to: id },
  status: 'pending',
  priority: 0,
  nextRunAt: at(1),
  createdAt: at(1),
  ...changes,
});

const failed = aJob('failed', {
  status: 'failed',
  past: {
    failCount: 3,
    failReason: 'the mailbox is full',
    failKind: 'error',
    firstFailedAt: at(2),
    finishedAt: at(3),
    expiresAt: new Date(Date.now() + 86_400_000),
    history: [
      {
        attempt: 3,
        status: 'failed',
        startedAt: at(3),
        finishedAt: at(3),
        durationMs: 0,
        instanceId: 'elsewhere',
        error: { name: 'Error', message: 'the mailbox is full' },
      },
    ],
  },
});

/** The store opens with the first call of its mill. */
async function opened(open: () => Store): Promise<{ store: Store; mill: Tidemill }> {
  const store = open();
  const mill = aMill(store);
  await mill.enqueueMany([]);
  return { store, mill };
}

eachStore('jobs with a past', ({ open }) => {
  it('stores a failed job with its reason and history, and retries it afresh', async () => {
    const { store, mill } = await opened(open);
    const [answer] = await store.jobs.insert([failed]);
    expect(answer).toMatchObject({ outcome: 'created', job: { status: 'failed', failCount: 3 } });
    const { expiresAt, failKind, firstFailedAt, ...past } = failed.past!;
    expect(await mill.jobs.get('failed')).toMatchObject({
      status: 'failed',
      data: { to: 'failed' },
      ...past,
    });
    expect((await store.jobs.insert([failed])).map(({ outcome }) => outcome)).toEqual(['existing']);
    mill.job('send', () => undefined);
    await mill.start();
    await mill.jobs.retry('failed');
    await until('it has run', async () => (await mill.jobs.get('failed'))?.status === 'completed');
  });

  it('continues to count the failures of a job that waits for another attempt', async () => {
    const { store, mill } = await opened(open);
    await store.jobs.insert([
      aJob('waits', {
        past: { failCount: 1, failReason: 'no answer' },
        retryPolicy: { type: 'fixed', interval: 0, maxAttempts: 2 },
      }),
      aJob('new'),
    ]);
    mill.job('send', ({ data }) => {
      if ((data as { to: string }).to === 'waits') throw new Error('still no answer');
    });
    await mill.start();
    const jobOf = async (id: string): Promise<string | undefined> => (await mill.jobs.get(id))?.status;
    await until(
      'both have ended',
      async () => (await jobOf('waits')) === 'failed' && (await jobOf('new')) === 'completed',
    );
    expect(await mill.jobs.get('waits')).toMatchObject({ failCount: 2, failReason: 'still no answer' });
  });
});
