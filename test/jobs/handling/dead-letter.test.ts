import { expect, it } from 'vitest';
import { FatalError, OptionError, defineJob, type DeadLetter } from '../../../src/index.js';
import { deadLetter } from '../../../src/core/records/dead-letter.js';
import { memory } from '../../../src/memory/index.js';
import { once } from '../../../src/testing/conformance/fixtures.js';
import { aMill, gate, until } from '../../support/mills.js';
import { aClaim, aJob, aRegistration } from '../../support/port.js';
import { eachStore } from '../../support/stores.js';

const fails =
  (message = 'the card was refused') =>
  (): never => {
    throw new FatalError(message);
  };

eachStore('dead letters', ({ open }) => {
  it('makes one for a job that fails for good, with the payload as it was enqueued', async () => {
    const mill = aMill(open());
    const letters: DeadLetter<{ amount: number; at: Date }>[] = [];
    const got = gate();
    mill.job<DeadLetter<{ amount: number; at: Date }>>('charge-dead', ({ data }) => {
      letters.push(data);
      got.open();
    });
    mill.job<{ amount: number }>('charge', { deadLetter: 'charge-dead', retryPolicy: once }, (job) => {
      job.data.amount = 0;
      throw new Error('the card was refused\0');
    });
    await mill.start();
    const at = new Date(86_400_000);
    const { id } = await mill.enqueue('charge', { amount: 5, at });
    await got.promise;
    expect(letters).toMatchObject([
      {
        job: { id, name: 'charge', data: { amount: 5, at } },
        error: { name: 'Error', message: 'the card was refused\uFFFD' },
        history: [{ attempt: 1, status: 'failed' }],
      },
    ]);
    expect((await mill.jobs.get(id))?.status).toBe('failed');
  });

  it('makes none while attempts are left, and another one when a manual retry fails again', async () => {
    const mill = aMill(open());
    let attempts = 0;
    mill.job(
      'charge',
      { deadLetter: 'charge-dead', retryPolicy: { type: 'fixed', interval: 0, maxAttempts: 2 } },
      async () => {
        attempts += 1;
        expect(await mill.jobs.count({ name: 'charge-dead' })).toBe(attempts > 2 ? 1 : 0);
        throw new Error('no');
      },
    );
    await mill.start();
    const { id } = await mill.enqueue('charge', {});
    await until('it has failed', async () => (await mill.jobs.get(id))?.status === 'failed');
    expect(await mill.jobs.count({ name: 'charge-dead' })).toBe(1);
    await mill.jobs.retry(id);
    await until('it has failed again', async () => (await mill.jobs.count({ name: 'charge-dead' })) === 2);
    expect(attempts).toBe(4);
  });

  it('makes one for a failed run of a schedule, with the id under which the run is kept', async () => {
    const mill = aMill(open());
    mill.job('report', { deadLetter: 'report-dead', retryPolicy: once }, fails('no figures'));
    await mill.schedule('0 3 1 1 *', 'report', { kind: 'sales' });
    await mill.start();
    await mill.schedules.runNow('report');
    const letter = await until('there is a letter', async () => {
      return (await mill.jobs.find({ name: 'report-dead' })).items[0];
    });
    const { job, error } = letter.data as DeadLetter;
    expect(job).toMatchObject({ name: 'report', data: { kind: 'sales' } });
    expect(error).toEqual({ name: 'FatalError', message: 'no figures' });
    expect((await mill.jobs.get(job.id))?.status).toBe('failed');
    expect((await mill.schedules.get('report'))?.status).toBe('pending');
  });

  it('makes one although failed jobs are not kept, and none for a cancelled job', async () => {
    const mill = aMill(open());
    const running = gate();
    mill.job('gone', { deadLetter: 'dead', retention: { failed: 0 } }, fails());
    mill.job('stopped', { deadLetter: 'dead' }, async ({ signal }) => {
      running.open();
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      throw new Error('given up');
    });
    await mill.start();
    const stopped = await mill.enqueue('stopped', {});
    await running.promise;
    await mill.jobs.cancel(stopped.id, { wait: true });
    const { id } = await mill.enqueue('gone', { n: 1 });
    await until('it is gone', async () => (await mill.jobs.get(id)) === undefined);
    const { items } = await mill.jobs.find({ name: 'dead' });
    expect(items.map(({ data }) => (data as DeadLetter).job)).toEqual([{ id, name: 'gone', data: { n: 1 } }]);
  });

  it('gives it the key, the place in order and the time limit of its own definition', async () => {
    const store = open();
    const mill = aMill(store);
    const key = 'job.data.customer';
    const dead = defineJob<DeadLetter>('charge-dead', {
      limits: { perKey: { key, order: 'fifo' } },
      expireIn: '1h',
    });
    mill.work(dead, () => undefined);
    mill.job('charge', { deadLetter: 'charge-dead', retryPolicy: once }, fails());
    await mill.jobs.pause('charge-dead');
    await mill.start();
    await mill.enqueue('charge', { customer: 'acme' });
    const letter = await until('there is a letter', async () => {
      return (await mill.jobs.find({ name: 'charge-dead' })).items[0];
    });
    expect(letter.limitKey).toBe('acme');
    expect((await store.jobs.get(letter.id))?.limitOrder).toEqual(expect.any(String));
    expect(letter.startBy).toEqual(new Date(letter.runAt.getTime() + 3_600_000));
    await mill.jobs.resume('charge-dead');
    await until('it has run', async () => (await mill.jobs.get(letter.id))?.status === 'completed');
  });

  it("has the key '' if its payload has none that is valid", async () => {
    const mill = aMill(open());
    const key = (): never => {
      throw new Error('no customer');
    };
    mill.job<DeadLetter>('charge-dead', { limits: { perKey: { key, concurrency: 1 } } }, () => undefined);
    mill.job('charge', { deadLetter: 'charge-dead', retryPolicy: once }, fails());
    await mill.start();
    await mill.enqueue('charge', {});
    const letter = await until('the letter has run', async () => {
      return (await mill.jobs.find({ name: 'charge-dead', status: 'completed' })).items[0];
    });
    expect(letter.limitKey).toBe('');
  });

  it.each(['nothing', 'a definition without a dead letter'])(
    'makes one for the last attempt of a process that died, by what it published; here is %s of the name',
    async (here) => {
      const store = open();
      const holder = {};
      await store.acquire(holder);
      const policies = { charge: { maxAttempts: 1 }, '': { charge: 'charge-dead' } };
      const dead = aRegistration({ policies, names: ['charge'], leaseMs: 1 });
      await store.instances.register(dead);
      await store.jobs.insert([aJob({ name: 'charge', data: { amount: 7 } })]);
      const [job] = (await store.jobs.claim(aClaim(dead, { names: ['charge'] }))).jobs;
      await store.jobs.begin({
        key: job?.key,
        id: job?.id ?? '',
        token: job?.leaseToken ?? null,
        lockedAt: null,
      });
      const mill = aMill(store, { leaseDuration: '1s' });
      if (here !== 'nothing') await mill.enqueue(defineJob('charge'), {}, { delay: '1h' });
      await mill.start();
      const letter = await until('there is a letter', async () => {
        return (await mill.jobs.find({ name: 'charge-dead' })).items[0];
      });
      expect((letter.data as DeadLetter).job).toEqual({ id: job?.id, name: 'charge', data: { amount: 7 } });
      expect((letter.data as DeadLetter).error.message).toMatch(/died or lost its lease/u);
      expect((await mill.jobs.get(job?.id ?? ''))?.status).toBe('failed');
      await store.release(holder);
    },
  );
});

it('refuses a dead letter of its own name, and a name that is none', () => {
  const mill = aMill(memory());
  expect(() => mill.job('charge', { deadLetter: 'charge' }, fails())).toThrow(
    'deadLetter must name another job, got its own name "charge".',
  );
  expect(() => defineJob('charge', { deadLetter: '' })).toThrow(OptionError);
});

it('leaves out the oldest half of a history that is too large, and says how many attempts that were', () => {
  const attempt = (n: number) => ({
    attempt: n,
    status: 'failed' as const,
    startedAt: new Date(0),
    finishedAt: new Date(0),
    durationMs: 0,
    instanceId: 'a',
    error: { name: 'Error', message: 'x'.repeat(1_000) },
  });
  const limits = { rules: { maxDepth: 10 }, maxBytes: 4_000 };
  const job = { id: '1', name: 'charge', data: {} };
  const history = [1, 2, 3, 4, 5, 6].map(attempt);
  const letter = deadLetter(job, new Error('no'), history, limits);
  expect(letter.history.map((one) => one.attempt)).toEqual([4, 5, 6]);
  expect(letter.historyOmitted).toBe(3);
  expect(deadLetter({ ...job, data: 'y'.repeat(4_000) }, new Error('no'), history, limits)).toMatchObject({
    history: [],
    historyOmitted: 6,
  });
});
