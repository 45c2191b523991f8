import { AssertionError } from 'node:assert';
import { describe, expect, it, onTestFinished } from 'vitest';
import { defineJob, OptionError, Tidemill, TidemillError } from '../../src/index.js';
import { memory } from '../../src/memory/index.js';
import {
  drain,
  expectEnqueued,
  expectNotEnqueued,
  runDue,
  testMill,
  virtualClock,
  type TestMill,
  type TestMillOptions,
} from '../../src/testing/index.js';
import { gate } from '../support/mills.js';
import { eachStore } from '../support/stores.js';

const NOON = '2026-03-01T12:00:00.000Z';

function aTestMill(options: TestMillOptions = {}): TestMill {
  const mill = testMill({ now: NOON, ...options });
  onTestFinished(() => mill.stop({ timeout: 0 }));
  return mill;
}

describe('a test mill', () => {
  it('runs nothing by itself', async () => {
    const mill = aTestMill();
    let runs = 0;
    const job = mill.job('count', () => void (runs += 1));
    await job.enqueue({});
    await mill.clock.advance('1h');
    expect(runs).toBe(0);
    expect(await mill.drain()).toEqual({ completed: 1, failed: 0, retried: 0 });
    expect(runs).toBe(1);
  });

  it('runs what is due, and leaves to the next call what its handlers ask for', async () => {
    const mill = aTestMill();
    const ran: string[] = [];
    mill.job('first', async () => {
      ran.push('first');
      await mill.enqueue('second');
    });
    mill.job('second', () => void ran.push('second'));
    await mill.enqueue('first');
    await mill.enqueue('first', {}, { delay: '1h' });
    expect(await mill.runDue()).toEqual({ completed: 1, failed: 0, retried: 0 });
    expect(ran).toEqual(['first']);
    await mill.runDue();
    expect(ran).toEqual(['first', 'second']);
    await mill.runDue();
    expect(ran).toEqual(['first', 'second']);
  });

  it('drains what handlers ask for as well, and leaves the future and retries alone', async () => {
    const mill = aTestMill();
    const ran: number[] = [];
    const chain = mill.job<{ left: number }>('chain', async ({ data }) => {
      ran.push(data.left);
      if (data.left > 0) await chain.enqueue({ left: data.left - 1 });
    });
    mill.job('broken', () => {
      throw new Error('always');
    });
    await chain.enqueue({ left: 12 });
    await chain.enqueue({ left: 0 }, { delay: '1m' });
    await mill.enqueue('broken');
    expect(await mill.drain()).toEqual({ completed: 13, failed: 0, retried: 1 });
    expect(ran).toHaveLength(13);
  });

  it('drains the future, too, where it is asked to, each job at its own time', async () => {
    const mill = aTestMill();
    const at: string[] = [];
    mill.job('late', () => void at.push(new Date(mill.clock.now()).toISOString()));
    mill.job('broken', { retryPolicy: { type: 'fixed', interval: '1h', maxAttempts: 3 } }, () => {
      throw new Error('always');
    });
    await mill.enqueue('late', {}, { delay: '2d' });
    await mill.enqueue('late', {}, { delay: '1d' });
    await mill.enqueue('broken');
    await mill.schedule('0 3 * * *', 'nightly');
    expect(await mill.drain({ scheduled: true })).toEqual({ completed: 2, failed: 1, retried: 2 });
    expect(at).toEqual(['2026-03-02T12:00:00.000Z', '2026-03-03T12:00:00.000Z']);
  });

  it('moves on, and runs what falls due on the way', async () => {
    const mill = aTestMill();
    const at: string[] = [];
    mill.job('nightly', () => void at.push(new Date(mill.clock.now()).toISOString()));
    await mill.schedule('0 3 * * *', 'nightly', {});
    expect(await mill.advance('2d')).toMatchObject({ completed: 2 });
    expect(at).toEqual(['2026-03-02T03:00:00.000Z', '2026-03-03T03:00:00.000Z']);
  });

  it('works like any other once it is started', async () => {
    const mill = aTestMill();
    let runs = 0;
    mill.job('count', () => void (runs += 1));
    await mill.start();
    await mill.enqueue('count');
    await mill.enqueue('count', {}, { delay: '1h' });
    await mill.clock.advance('2h');
    expect(runs).toBe(2);
    await mill.stop();
    await mill.enqueue('count');
    await mill.clock.advance('1h');
    expect(runs).toBe(2);
  });

  it('waits for handlers that need real time', async () => {
    const mill = aTestMill();
    let ended = false;
    mill.job('slow', async () => {
      await new Promise((resolve) => setTimeout(resolve, 80));
      ended = true;
    });
    await mill.enqueue('slow');
    await mill.drain();
    expect(ended).toBe(true);
  });

  it('says what it waited for in vain', async () => {
    const mill = aTestMill();
    const { promise, open } = gate();
    mill.job('stuck', () => promise);
    const { id } = await mill.enqueue('stuck');
    const call = mill.drain({ timeout: 100 });
    // Its handler has to end before the mill can stop.
    setTimeout(open, 500);
    await expect(call).rejects.toThrow(`stuck ${id} (processing)`);
  });

  it('does not wait for names that are paused, or that have no handler', async () => {
    const mill = aTestMill();
    let runs = 0;
    mill.job('rests', () => void (runs += 1));
    await mill.jobs.pause('rests');
    await mill.enqueue('rests');
    await mill.enqueue('unknown');
    expect(await mill.drain({ scheduled: true })).toEqual({ completed: 0, failed: 0, retried: 0 });
    expect(runs).toBe(0);
  });

  it('runs documents that are due', async () => {
    const mill = aTestMill();
    const seen: unknown[] = [];
    const letters = mill.store.collection('letters');
    mill.documents({ collection: 'letters', onDocument: (document) => void seen.push(document['_id']) });
    letters.insert({ _id: 1, sleepUntil: new Date(NOON) });
    letters.insert({ _id: 2, sleepUntil: new Date('2026-03-01T13:00:00Z') });
    await mill.drain();
    expect(seen).toEqual([1]);
    await mill.advance('1h');
    expect(seen).toEqual([1, 2]);
  });

  it('refuses options that it does not know', () => {
    expect(() => testMill({ inlined: true } as TestMillOptions)).toThrow(OptionError);
    expect(() => testMill({ inline: 'yes' as never })).toThrow('inline');
  });
});

describe('inline', () => {
  it('runs a job before its enqueue resolves, and answers it as it ended', async () => {
    const mill = aTestMill({ inline: true });
    const double = mill.job<{ n: number }>('double', ({ data }) => data.n * 2);
    const job = await double.enqueue({ n: 4 });
    expect(job).toMatchObject({ status: 'completed', result: 8, outcome: 'created' });
    const many = await mill.enqueueMany([1, 2, 3].map((n) => ({ name: 'double', data: { n } })));
    expect(many.map(({ result }) => result)).toEqual([2, 4, 6]);
  });

  it('runs what handlers ask for inside of them', async () => {
    const mill = aTestMill({ inline: true });
    const order: string[] = [];
    mill.job('outer', async () => {
      order.push('outer begins');
      await mill.enqueue('inner');
      order.push('outer ends');
    });
    mill.job('inner', () => void order.push('inner'));
    await mill.enqueue('outer');
    expect(order).toEqual(['outer begins', 'inner', 'outer ends']);
  });

  it('rejects with what the handler threw', async () => {
    const mill = aTestMill({ inline: true });
    mill.job('broken', () => {
      throw new RangeError('too far');
    });
    await expect(mill.enqueue('broken')).rejects.toThrow(RangeError);
    await expectEnqueued(mill, 'broken', {}, { status: 'pending', times: 1 });
  });

  it('leaves jobs for later, and those without a handler, where they are', async () => {
    const mill = aTestMill({ inline: true });
    mill.job('later', () => 1);
    expect((await mill.enqueue('later', {}, { delay: '1m' })).status).toBe('pending');
    expect((await mill.enqueue('unknown')).status).toBe('pending');
    expect(await mill.advance('1m')).toMatchObject({ completed: 1 });
  });

  it('runs nothing that was asked for in a transaction which did not commit', async () => {
    const mill = aTestMill({ inline: true });
    let runs = 0;
    mill.job('count', () => void (runs += 1));
    const failing = mill.withTransaction(async (transaction) => {
      await mill.enqueue('count', {}, { transaction });
      throw new Error('rolled back');
    });
    await expect(failing).rejects.toThrow('rolled back');
    await mill.drain();
    expect(runs).toBe(0);
  });
});

describe('expectations', () => {
  const sendEmail = defineJob<{ to: string; tags?: string[]; meta?: { lang: string; beta?: boolean } }>(
    'send-email',
  );

  it('find jobs whose data contains what is asked for', async () => {
    const mill = aTestMill();
    await mill.enqueue(sendEmail, { to: 'a@example.com', meta: { lang: 'cs', beta: true } });
    await mill.enqueue(sendEmail, { to: 'b@example.com', tags: ['x'] }, { uniqueKey: 'b', delay: '1h' });
    const [job] = await mill.expectEnqueued(sendEmail, { meta: { lang: 'cs' } });
    expect(job?.data.to).toBe('a@example.com');
    await mill.expectEnqueued(sendEmail, {}, { times: 2, status: 'pending' });
    await mill.expectEnqueued(
      'send-email',
      { tags: ['x'] },
      { uniqueKey: 'b', runAt: new Date('2026-03-01T13:00:00Z') },
    );
    await mill.expectNotEnqueued(sendEmail, { to: 'c@example.com' });
    await mill.expectNotEnqueued('other');
  });

  it('tell what was asked for instead', async () => {
    const mill = aTestMill();
    await mill.enqueue(sendEmail, { to: 'a@example.com' });
    const error: unknown = await expectEnqueued(mill, sendEmail, { to: 'b@example.com' }).catch(
      (caught: unknown) => caught,
    );
    expect(error).toBeInstanceOf(AssertionError);
    expect(error).toMatchObject({ expected: { to: 'b@example.com' }, actual: [{ to: 'a@example.com' }] });
    expect(String(error)).toContain('a@example.com');
    await expect(mill.expectEnqueued('other')).rejects.toThrow('none of that name');
    await expect(mill.expectEnqueued(sendEmail, {}, { times: 2 })).rejects.toThrow('found 1');
    await expect(expectNotEnqueued(mill, sendEmail)).rejects.toThrow('expected no job');
  });
});

eachStore('drain and runDue', ({ open }) => {
  it('wait for the jobs of any mill, and start it for that where nobody did', async () => {
    const mill = new Tidemill({ store: open(), logger: false });
    onTestFinished(() => mill.stop({ timeout: 0 }));
    let runs = 0;
    mill.job<{ again: boolean }>('count', async ({ data }) => {
      runs += 1;
      if (data.again) await mill.enqueue('count', { again: false });
    });
    await mill.enqueue('count', { again: true });
    await mill.enqueue('count', { again: false }, { delay: '1h' });
    expect(await drain(mill)).toMatchObject({ completed: 2 });
    expect(mill.started).toBe(false);
    await mill.start();
    await mill.enqueue('count', { again: false });
    await runDue(mill);
    expect(runs).toBe(3);
    expect(mill.started).toBe(true);
  });
});

describe('drain', () => {
  it('follows the clock of a memory store', async () => {
    const clock = virtualClock(0);
    const mill = new Tidemill({ store: memory({ clock }), logger: false });
    onTestFinished(() => mill.stop({ timeout: 0 }));
    mill.job('x', () => 1);
    await mill.enqueue('x', {}, { delay: '1h' });
    expect(await drain(mill, { clock })).toMatchObject({ completed: 0 });
    await expect(drain(mill, { patience: 1 } as never)).rejects.toThrow(TidemillError);
  });
});
