import { describe, expect, it } from 'vitest';
import { defineJob, FatalError, OptionError, type MillEvents } from '../../../src/index.js';
import { memory } from '../../../src/memory/index.js';
import { virtualClock } from '../../../src/testing/index.js';
import { keepLines, type Logged } from '../../reactive/mills.js';
import { aMill, gate, until } from '../../support/mills.js';

const START = '2025-01-01T00:00:00Z';

function aTalkingMill() {
  const clock = virtualClock(START);
  const { logger, lines } = keepLines();
  const store = memory({ clock });
  const mill = aMill(store, { logger });
  const at = (level: string): Logged[] => lines.filter((line) => line.level === level);
  return { clock, store, mill, lines, at };
}

describe('a job that fails', () => {
  it('for good logs one line with its name, id, attempt, error and what can be done; a retry logs at debug', async () => {
    const { clock, mill, at } = aTalkingMill();
    const type = mill.job('send-email', { retryPolicy: { maxAttempts: 2 } }, () => {
      throw new Error('mailbox\nis full');
    });
    await mill.start();
    const { id } = await type.enqueue({});
    await clock.advance('1s');
    expect(at('error')).toEqual([]);
    expect(at('debug').map(({ text }) => text)).toEqual([
      `job "send-email" ${id} failed at attempt 1 and is tried again at 2025-01-01T00:00:02.000Z: mailbox is full.`,
    ]);
    await clock.advance('5s');
    const [line, ...others] = at('error');
    expect(others).toEqual([]);
    expect(line?.text).toBe(
      `job "send-email" ${id} failed for good at attempt 2: mailbox is full. To run it again: mill.jobs.retry("${id}"), or tidemill retry ${id}`,
    );
    expect(line?.fields).toMatchObject({ job: id, name: 'send-email', attempt: 2, leftOut: 0 });
    expect(line?.fields).toHaveProperty('error', expect.objectContaining({ message: 'mailbox\nis full' }));
  });

  it('for good many times logs one line in ten seconds and name, and counts those left out', async () => {
    const { clock, mill, at } = aTalkingMill();
    const fail = (): never => {
      throw new FatalError('no');
    };
    const [one, other] = [mill.job('one', fail), mill.job('other', fail)];
    await mill.start();
    await one.enqueueMany(Array.from({ length: 20 }, () => ({ data: {} })));
    await other.enqueue({});
    await clock.advance('5s');
    expect(
      at('error')
        .map(({ fields }) => Reflect.get(fields, 'name') as string)
        .sort(),
    ).toEqual(['one', 'other']);
    await clock.advance('10s');
    await one.enqueueMany([{ data: {} }, { data: {} }]);
    await clock.advance('1s');
    expect(at('error')).toHaveLength(3);
    expect(at('error')[2]?.text).toMatch(/ \(19 more of this name failed since the last line\)$/u);
    await mill.stop();
    expect(
      at('error')
        .slice(3)
        .map(({ text }) => text),
    ).toEqual(['1 more of the job "one" failed for good']);
  });

  it('of a schedule names the copy of the run that can be retried', async () => {
    const { clock, mill, at } = aTalkingMill();
    mill.job('nightly', () => {
      throw new FatalError('no disk');
    });
    await mill.start();
    await mill.schedule('@hourly', 'nightly');
    await clock.advance('1h');
    const [failed] = (await mill.jobs.find({ status: 'failed' })).items;
    expect(at('error').map(({ text }) => text)).toEqual([
      expect.stringContaining(
        `no disk. The schedule continues. To run it again: mill.jobs.retry("${String(failed?.id)}"), or tidemill retry `,
      ),
    ]);
  });

  it('without being kept says that it is not', async () => {
    const { clock, mill, at } = aTalkingMill();
    const type = mill.job('gone', { retention: { failed: 0 } }, () => {
      throw new FatalError('no');
    });
    await mill.start();
    await type.enqueue({});
    await clock.advance('1s');
    expect(at('error')[0]?.text).toContain('It is not kept: the retention of failed jobs is 0.');
  });
});

describe('a reactive task that fails', () => {
  it('for good logs one line, and its retries at debug', async () => {
    const { clock, store, mill, at } = aTalkingMill();
    await mill.reactiveTask({
      task: 'sync',
      collection: 'orders',
      debounce: 0,
      retryPolicy: { maxAttempts: 2 },
      handler: () => {
        throw new Error('the ERP is down');
      },
    });
    await mill.start();
    await clock.advance('5s');
    store.collection('orders').insert({ _id: 5 });
    await clock.advance('1m');
    expect(at('error').map(({ text }) => text)).toEqual([
      expect.stringMatching(
        /^task "sync" \S+ failed for good at attempt 2: the ERP is down\. It runs again when its document changes, or by mill\.tasks\.retryMany\(\{ id: "\S+" \}\)$/u,
      ),
    ]);
    expect(at('debug').filter(({ text }) => text.includes('failed at attempt 1'))).toHaveLength(1);
  });
});

describe('jobs.result', () => {
  it('rejects with the error of the job, and has what was thrown as its cause', async () => {
    const { clock, mill } = aTalkingMill();
    const type = mill.job('bad', () => {
      throw new FatalError('the reason');
    });
    await mill.start();
    const { id } = await type.enqueue({});
    await clock.advance('1s');
    const error: unknown = await mill.jobs.result(id).catch((problem: unknown) => problem);
    expect(error).toMatchObject({
      code: 'JOB_FAILED',
      message: `Job ${id} failed after 1 attempt: the reason.`,
      cause: { name: 'FatalError', message: 'the reason' },
    });
    expect((error as { cause: Error }).cause.stack).toContain('failures-speak.test');
  });

  it.each([
    ['no instance runs its name', async () => Promise.resolve(), 'No live instance runs the name "a".'],
    [
      'its name is paused',
      async (mill: ReturnType<typeof aMill>) => {
        mill.job('a', () => 1);
        await mill.jobs.pause('a');
        await mill.start();
      },
      'Jobs of the name "a" are paused',
    ],
    [
      'it waits for a retry',
      async (mill: ReturnType<typeof aMill>) => {
        mill.job('a', { retryPolicy: { type: 'fixed', interval: '1h' } }, () => {
          throw new Error('mailbox full');
        });
        await mill.start();
      },
      'It has failed once so far. Its last attempt failed: mailbox full.',
    ],
  ])('says after its timeout that %s', async (_what, prepare, text) => {
    const { clock, mill } = aTalkingMill();
    await prepare(mill);
    const { id } = await mill.enqueue('a', {});
    const waiting = mill.jobs.result(id, { timeout: '10s' }).catch((problem: unknown) => problem);
    await clock.advance('10s');
    const error = await waiting;
    expect(error).toMatchObject({ code: 'TIMEOUT' });
    expect((error as Error).message).toMatch(new RegExp(`^Job ${id} did not end within 10000 ms\\. `, 'u'));
    expect((error as Error).message).toContain(text);
  });
});

describe('jobs.result of a job that runs', () => {
  it('says after its timeout where it runs', async () => {
    const { clock, mill } = aTalkingMill();
    const { promise, open } = gate();
    mill.job('a', () => promise);
    await mill.start();
    const { id } = await mill.enqueue('a', {});
    const waiting = mill.jobs.result(id, { timeout: '10s' }).catch((problem: unknown) => problem);
    await clock.advance('10s');
    expect(await waiting).toMatchObject({
      code: 'TIMEOUT',
      message: `Job ${id} did not end within 10000 ms. It is running on ${mill.instanceId}.`,
    });
    open();
  });
});

describe('a listener', () => {
  it.each([
    ['completed', 'Did you mean "job:complete"?'],
    ['failed', 'Did you mean "job:fail"?'],
    ['progress', 'Did you mean "job:progress"?'],
    ['job:completed', 'Did you mean "job:complete"?'],
    ['task:failed', 'Did you mean "task:fail"?'],
    ['eror', 'Did you mean "error"?'],
    ['zzz', 'unknown event "zzz". Known events: job:start,'],
    [undefined, 'unknown event undefined. Known events'],
  ])('for the unknown event %s is refused', (event, message) => {
    const mill = aMill(memory());
    const listen = (): unknown => mill.on(event as keyof MillEvents, () => undefined);
    expect(listen).toThrow(OptionError);
    expect(listen).toThrow(message);
  });
});

describe('a job name that no definition and no live instance knows', () => {
  it('is pointed out once, with the name that was meant', async () => {
    const { clock, store, mill, at } = aTalkingMill();
    const worker = aMill(store);
    worker.job('send-email', () => 1);
    await worker.start();
    await mill.enqueue('send-emial', {});
    await mill.enqueue('send-email', {});
    await mill.enqueue(defineJob('later'), {});
    expect(at('warn')).toEqual([]);
    await clock.advance('10s');
    await mill.enqueue('send-emial', {});
    await mill.schedule('@daily', 'send-emial');
    await clock.advance('1m');
    expect(at('warn').map(({ text }) => text)).toEqual([
      'jobs of the name "send-emial" are enqueued, but no live instance runs it, and it is not defined here. ' +
        'Did you mean "send-email"? They wait until a worker for it starts.',
    ]);
  });

  it('is pointed out once if it is paused', async () => {
    const { clock, store, mill, at } = aTalkingMill();
    const worker = aMill(store);
    worker.job('send-email', () => 1);
    await worker.start();
    await mill.jobs.pause('send-emial');
    await mill.jobs.pause('send-email');
    await clock.advance('10s');
    await mill.jobs.pause('send-emial');
    await clock.advance('10s');
    expect(at('warn').map(({ text }) => text)).toEqual([
      'the name "send-emial" is paused, but no live instance runs it, and it is not defined here. Did you mean "send-email"?',
    ]);
  });

  it('costs nothing after a stop, which forgets what was not checked', async () => {
    const { clock, mill, at } = aTalkingMill();
    await mill.enqueue('unknown', {});
    await mill.stop();
    await clock.advance('1m');
    expect(at('warn')).toEqual([]);
    await mill.enqueue('unknown', {});
    await clock.advance('1m');
    expect(at('warn')).toHaveLength(1);
  });

  it('is not pointed out if a worker for it has started meanwhile', async () => {
    const { clock, store, mill, at } = aTalkingMill();
    await mill.enqueue('a', {});
    await clock.advance('2s');
    const worker = aMill(store);
    const ran: string[] = [];
    worker.job('a', ({ id }) => void ran.push(id));
    await worker.start();
    await clock.advance('1m');
    await until('it ran', () => ran.length === 1);
    expect(at('warn')).toEqual([]);
  });
});
