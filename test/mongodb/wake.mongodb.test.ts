import { describe, expect, it } from 'vitest';
import { mongodb } from '../../src/mongodb/index.js';
import { aMill, gate, rarely, until } from '../support/mills.js';
import { aClaim, aJob, anInstance, opened } from '../support/port.js';
import { freshUri } from '../support/stores.js';
import { wakeFacts } from '../support/wake-facts.js';

describe('wake-ups on MongoDB', () => {
  wakeFacts('a message', () => {
    const uri = freshUri();
    const worker = aMill(mongodb({ uri }), { pollInterval: rarely });
    return { worker, operator: aMill(mongodb({ uri })) };
  });

  it('a claim takes the jobs that a wake-up named, beside others, within its limits', async () => {
    const store = await opened(mongodb({ uri: freshUri() }));
    const inserted = await store.jobs.insert([aJob({ data: 0 }), aJob({ data: 1 }), aJob({ data: 2 })]);
    const hints = inserted.slice(1).map(({ job }) => ({ key: job.key, name: job.name }));
    const one = await store.jobs.claim(aClaim(anInstance(), { max: 1, hints }));
    expect(one).toMatchObject({ jobs: [{ data: 1 }], asked: 1, more: true });
    // The first of them is gone: nothing is lost, and the claim does not count as short.
    const rest = await store.jobs.claim(aClaim(anInstance(), { max: 5, hints }));
    expect(rest).toMatchObject({ jobs: [{ data: 0 }, { data: 2 }], asked: 2, more: false });
    expect(rest.jobs.every((job) => job.leaseToken === rest.jobs[0]?.leaseToken)).toBe(true);
  });

  it('a wake-up starts no job of a paused name', async () => {
    const uri = freshUri();
    const [worker, producer] = [aMill(mongodb({ uri }), { pollInterval: rarely }), aMill(mongodb({ uri }))];
    const ran: unknown[] = [];
    worker.job('x', (job) => ran.push(job.data));
    await worker.start();
    await until('it is idle', () => worker.health().wakeUp === 'stream');
    await producer.jobs.pause('x');
    const jobs = [];
    for (let n = 0; n < 20; n += 1) jobs.push(await producer.enqueue('x', n));
    const pending = async (): Promise<boolean> => (await producer.jobs.count({ status: 'pending' })) === 20;
    await until('all are back in the queue', pending);
    expect(ran).toEqual([]);
    await producer.jobs.resume('x');
    for (const job of jobs) await producer.jobs.result(job.id, { timeout: '45s' });
    expect(ran).toHaveLength(20);
    expect(await producer.jobs.get(jobs[0]?.id ?? '')).toMatchObject({ failCount: 0 });
  });

  it('a retry, a reschedule and a schedule run now wake an idle worker', async () => {
    const uri = freshUri();
    const [worker, operator] = [aMill(mongodb({ uri }), { pollInterval: rarely }), aMill(mongodb({ uri }))];
    let fail = true;
    worker.job('x', { retryPolicy: { type: 'fixed', interval: 0, maxAttempts: 1 } }, () => {
      if (fail) throw new Error('not yet');
      return 'ran';
    });
    const ticked = gate();
    worker.job('tick', () => ticked.open());
    await worker.start();
    const job = await operator.enqueue('x', {});
    await expect(operator.jobs.result(job.id, { timeout: '45s' })).rejects.toThrow('not yet');
    fail = false;
    await operator.jobs.retry(job.id);
    expect(await operator.jobs.result(job.id, { timeout: '45s' })).toBe('ran');
    const later = await operator.enqueue('x', {}, { delay: '1d' });
    await operator.jobs.reschedule(later.id, 0);
    expect(await operator.jobs.result(later.id, { timeout: '45s' })).toBe('ran');
    await operator.schedule('0 3 1 1 *', 'tick');
    await operator.schedules.runNow('tick');
    await ticked.promise;
  });

  it('the timer of an idle worker finds jobs that come due later, without a wake-up', async () => {
    const mill = aMill(mongodb({ uri: freshUri() }), { pollInterval: rarely });
    const order: number[] = [];
    mill.job<number>('x', { concurrency: 1 }, (job) => order.push(job.data));
    await mill.start();
    await mill.enqueueMany([300, 100, 200, 400].map((ms) => ({ name: 'x', data: ms, delay: ms })));
    await mill.enqueue('x', -1, { delay: '60d' });
    await until('all that is due has run', () => order.length === 4);
    expect(order).toEqual([100, 200, 300, 400]);
  });

  it('a steady trickle of wake-ups does not postpone a delayed job', async () => {
    const uri = freshUri();
    const [worker, producer] = [aMill(mongodb({ uri }), { pollInterval: rarely }), aMill(mongodb({ uri }))];
    const ran = gate();
    const trickle = { on: true };
    worker.job('due', () => {
      trickle.on = false;
      ran.open();
    });
    worker.job('drip', () => undefined);
    await worker.start();
    await producer.enqueue('due', {}, { delay: 300 });
    let drips = 0;
    while (trickle.on && drips < 2_000) {
      await producer.enqueue('drip', {});
      drips += 1;
    }
    expect(trickle.on).toBe(false);
    await ran.promise;
  });
});
