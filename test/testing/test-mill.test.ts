import { AssertionError } from 'node:assert';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
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

describe('testMill', () => {
  it('a test mill runs nothing by itself', async () => {
    const mill = aTestMill();
    let runs = 0;
    const job = mill.job('count', () => void (runs += 1));
    await job.enqueue({});
    await mill.clock.advance('1h');
    expect(runs).toBe(0);
    expect(await mill.drain()).toEqual({ completed: 1, failed: 0, retried: 0 });
    expect(runs).toBe(1);
  });

  it('runDue runs what is due, and leaves what handlers enqueue to the next call', async () => {
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

  it('drain also runs what handlers enqueue, but neither delayed jobs nor retries', async () => {
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

  it('drain with scheduled: true also runs delayed jobs and retries, each at its own time', async () => {
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

  it('advance moves the clock and runs what comes due on the way', async () => {
    const mill = aTestMill();
    const at: string[] = [];
    mill.job('nightly', () => void at.push(new Date(mill.clock.now()).toISOString()));
    await mill.schedule('0 3 * * *', 'nightly', {});
    expect(await mill.advance('2d')).toMatchObject({ completed: 2 });
    expect(at).toEqual(['2026-03-02T03:00:00.000Z', '2026-03-03T03:00:00.000Z']);
  });

  it('advance runs the newest payload of a debounced job once, when it is due', async () => {
    const mill = aTestMill();
    const ran: unknown[] = [];
    const job = mill.job<number>('index', ({ data }) => void ran.push([data, mill.clock.now()]));
    const start = mill.clock.now();
    for (const data of [1, 2, 3]) {
      const { outcome } = await job.enqueue(data, {
        uniqueKey: 'k',
        debounce: { wait: '10s', maxWait: '15s' },
      });
      expect(outcome).toBe(data === 1 ? 'created' : 'replaced');
      await mill.advance('4s');
    }
    expect(ran).toEqual([]);
    const [asked] = await mill.expectEnqueued('index', undefined, { times: 1, uniqueKey: 'k' });
    expect(asked?.data).toBe(3);
    await mill.advance('3s');
    expect(ran).toEqual([[3, start + 15_000]]);
  });

  it('advance cancels a job that expires on the way', async () => {
    const mill = aTestMill();
    mill.job('other', () => undefined);
    const expired: string[] = [];
    mill.on('job:expire', ({ job }) => expired.push(job.id));
    const { id } = await mill.enqueue('nobody', {}, { delay: '1m', expireIn: '30s' });
    await mill.advance('89s');
    expect(expired).toEqual([]);
    await mill.advance('1s');
    expect(expired).toEqual([id]);
    expect(await mill.jobs.get(id)).toMatchObject({ status: 'cancelled', error: 'expired' });
  });

  it('runs a job inline that was replaced and is due', async () => {
    const mill = aTestMill({ inline: true });
    const ran: unknown[] = [];
    const job = mill.job<number>('sync', ({ data }) => void ran.push(data));
    await job.enqueue(1, { uniqueKey: 'k', delay: '1h' });
    const replaced = await job.enqueue(2, { uniqueKey: 'k', onExisting: 'replace' });
    expect([replaced.outcome, replaced.status]).toEqual(['replaced', 'completed']);
    expect(ran).toEqual([2]);
  });

  it('a started test mill works like any other', async () => {
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

  it('drain waits for handlers that need real time', async () => {
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

  it('drain names the job it waited for in vain', async () => {
    const mill = aTestMill();
    const { promise, open } = gate();
    mill.job('stuck', () => promise);
    const { id } = await mill.enqueue('stuck');
    const call = mill.drain({ timeout: 100 });
    // Its handler has to end before the mill can stop.
    setTimeout(open, 500);
    await expect(call).rejects.toThrow(`stuck ${id} (processing)`);
  });

  it('drain does not wait for names that are paused or have no handler', async () => {
    const mill = aTestMill();
    let runs = 0;
    mill.job('rests', () => void (runs += 1));
    await mill.jobs.pause('rests');
    await mill.enqueue('rests');
    await mill.enqueue('unknown');
    expect(await mill.drain({ scheduled: true })).toEqual({ completed: 0, failed: 0, retried: 0 });
    expect(runs).toBe(0);
  });

  it('drain and advance run documents that are due', async () => {
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

  it('testMill rejects unknown and invalid options', () => {
    expect(() => testMill({ inlined: true } as TestMillOptions)).toThrow(OptionError);
    expect(() => testMill({ inline: 'yes' as never })).toThrow('inline');
  });
});

describe('advance over a month', () => {
  /** How many timers were set meanwhile, which is also how often the clock stopped. */
  async function stopsOf(mill: TestMill): Promise<number> {
    const timer = vi.spyOn(mill.clock, 'timer');
    await mill.advance('30d');
    expect(mill.clock.now()).toBe(Date.parse(NOON) + 30 * 86_400_000);
    return timer.mock.calls.length;
  }

  it('advance skips a month without due work in a few steps', async () => {
    const mill = aTestMill();
    mill.job('later', () => 1);
    await mill.enqueue('later', {}, { delay: '31d' });
    expect(await stopsOf(mill)).toBeLessThan(150);
    expect(await mill.advance('1d')).toMatchObject({ completed: 1 });
  });

  it('advance skips a month without changes in a few steps on a mill that watches data', async () => {
    const mill = aTestMill();
    const orders = mill.store.collection('orders');
    await mill.reactiveTask({
      task: 'invoice',
      collection: 'orders',
      filter: { status: 'paid' },
      handler: () => 1,
    });
    orders.insert({ _id: 'a', status: 'open' });
    expect(await stopsOf(mill)).toBeLessThan(500);
    orders.update('a', { status: 'paid' });
    expect(await mill.advance('1s')).toMatchObject({ completed: 1 });
  });

  it('advance deletes finished jobs once their retention ends', async () => {
    const mill = aTestMill({ retention: { completed: '7d' } });
    mill.job('kept', () => 1);
    const { id } = await mill.enqueue('kept');
    await mill.drain();
    await mill.advance('6d');
    expect(await mill.jobs.get(id)).toMatchObject({ status: 'completed' });
    await mill.advance('2d');
    expect(await mill.jobs.get(id)).toBeUndefined();
  });

  it('advance over a month stops for each run of a daily schedule, and little more', async () => {
    const mill = aTestMill();
    mill.job('nightly', () => 1);
    await mill.schedule('0 3 * * *', 'nightly', {});
    const timer = vi.spyOn(mill.clock, 'timer');
    expect(await mill.advance('30d')).toMatchObject({ completed: 30 });
    expect(timer.mock.calls.length).toBeLessThan(30 * 100);
  });
});

describe('fake timers of the test runner', () => {
  it.each([
    ['drain', (mill: TestMill) => mill.drain()],
    ['runDue', (mill: TestMill) => mill.runDue()],
    ['advance', (mill: TestMill) => mill.advance('1h')],
    ['start', (mill: TestMill) => mill.start()],
    ['clock.advance', (mill: TestMill) => mill.clock.advance('1h')],
  ])('%s rejects fake timers with an error that says what to do', async (where, call) => {
    const mill = aTestMill();
    vi.useFakeTimers();
    try {
      const error: unknown = await call(mill).catch((caught: unknown) => caught);
      expect(error).toMatchObject({ code: 'FAKE_TIMERS' });
      expect(String(error)).toContain(`${where}: fake timers are installed`);
      expect(String(error)).toContain("vi.useFakeTimers({ toFake: ['Date'] })");
    } finally {
      vi.useRealTimers();
    }
    await call(mill);
  });

  it('stop of a started test mill rejects fake timers', async () => {
    const mill = aTestMill();
    await mill.start();
    vi.useFakeTimers();
    try {
      await expect(mill.stop()).rejects.toMatchObject({ code: 'FAKE_TIMERS' });
    } finally {
      vi.useRealTimers();
    }
    await mill.stop();
    vi.useFakeTimers();
    try {
      await mill.stop();
    } finally {
      vi.useRealTimers();
    }
  });

  it('drain and runDue reject fake timers for a mill on real time', async () => {
    const mill = new Tidemill({ store: memory(), logger: false });
    vi.useFakeTimers();
    try {
      await expect(drain(mill)).rejects.toMatchObject({ code: 'FAKE_TIMERS' });
      await expect(runDue(mill)).rejects.toMatchObject({ code: 'FAKE_TIMERS' });
    } finally {
      vi.useRealTimers();
    }
  });

  it('enqueue works with the fake timers of Jest, which hold back microtasks as well', async () => {
    const mill = aTestMill();
    vi.useFakeTimers({ toFake: ['setTimeout', 'setInterval', 'setImmediate', 'queueMicrotask', 'Date'] });
    try {
      expect(await mill.enqueue('x')).toMatchObject({ outcome: 'created' });
      await expect(mill.drain()).rejects.toMatchObject({ code: 'FAKE_TIMERS' });
    } finally {
      vi.useRealTimers();
    }
  });

  it('a test mill works while fake timers fake only the date', async () => {
    vi.useFakeTimers({ toFake: ['Date'], now: Date.parse(NOON) });
    try {
      const mill = testMill();
      mill.job('x', () => 1);
      await mill.enqueue('x', {}, { delay: '1h' });
      expect(await mill.advance('1h')).toMatchObject({ completed: 1 });
      expect(mill.clock.now()).toBe(Date.parse(NOON) + 3_600_000);
      await mill.stop();
    } finally {
      vi.useRealTimers();
    }
  });
});

describe('inline mode of a test mill', () => {
  it('inline mode runs a job before its enqueue resolves, and returns it as it ended', async () => {
    const mill = aTestMill({ inline: true });
    const double = mill.job<{ n: number }>('double', ({ data }) => data.n * 2);
    const job = await double.enqueue({ n: 4 });
    expect(job).toMatchObject({ status: 'completed', result: 8, outcome: 'created' });
    const many = await mill.enqueueMany([1, 2, 3].map((n) => ({ name: 'double', data: { n } })));
    expect(many.map(({ result }) => result)).toEqual([2, 4, 6]);
  });

  it('inline mode runs what a handler enqueues inside that handler', async () => {
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

  it('inline mode rejects with what the handler threw', async () => {
    const mill = aTestMill({ inline: true });
    mill.job('broken', () => {
      throw new RangeError('too far');
    });
    await expect(mill.enqueue('broken')).rejects.toThrow(RangeError);
    await expectEnqueued(mill, 'broken', {}, { status: 'pending', times: 1 });
  });

  it('inline mode leaves delayed jobs and jobs without a handler pending', async () => {
    const mill = aTestMill({ inline: true });
    mill.job('later', () => 1);
    expect((await mill.enqueue('later', {}, { delay: '1m' })).status).toBe('pending');
    expect((await mill.enqueue('unknown')).status).toBe('pending');
    expect(await mill.advance('1m')).toMatchObject({ completed: 1 });
  });

  it('inline mode runs nothing that was enqueued in a transaction that did not commit', async () => {
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

describe('expectEnqueued and expectNotEnqueued', () => {
  const sendEmail = defineJob<{ to: string; tags?: string[]; meta?: { lang: string; beta?: boolean } }>(
    'send-email',
  );

  it('expectEnqueued finds jobs whose data contains the expected values', async () => {
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

  it('a failed expectation shows what was enqueued instead', async () => {
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

eachStore('drain and runDue of any mill', ({ open }) => {
  it('drain and runDue wait for the jobs of any mill, and start it if needed', async () => {
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

describe('drain with a clock', () => {
  it("drain leaves delayed jobs of a memory store's clock alone, and rejects unknown options", async () => {
    const clock = virtualClock(0);
    const mill = new Tidemill({ store: memory({ clock }), logger: false });
    onTestFinished(() => mill.stop({ timeout: 0 }));
    mill.job('x', () => 1);
    await mill.enqueue('x', {}, { delay: '1h' });
    expect(await drain(mill, { clock })).toMatchObject({ completed: 0 });
    await expect(drain(mill, { patience: 1 } as never)).rejects.toThrow(TidemillError);
  });
});
