import { fork } from 'node:child_process';
import { once } from 'node:events';
import { ObjectId } from 'mongodb';
import { expect, it } from 'vitest';
import { defineJob, type Job, type Tidemill } from '../../../src/index.js';
import { memory } from '../../../src/memory/index.js';
import { aMill, until } from '../../support/mills.js';
import { eachStore, freshMongodb } from '../../support/stores.js';

const thread = new URL('./thread-modules/handler.mjs', import.meta.url);
const retryPolicy = { type: 'fixed', interval: '1h', maxAttempts: 3 } as const;
const resize = defineJob<{ do: string }>('resize', { retryPolicy });

async function runIn(mill: Tidemill, what: string, ended: (job: Job) => boolean): Promise<Job> {
  mill.work(resize, { thread, concurrency: 2 });
  await mill.start();
  const { id } = await mill.enqueue(resize, { do: what });
  return until(`"${what}" has ended`, async () => {
    const job = await mill.jobs.get(id);
    return job !== undefined && ended(job) && job;
  });
}

const isOver = ({ status }: Job): boolean => !['pending', 'processing'].includes(status);
const isBack = ({ status, nextRunAt }: Job): boolean =>
  status === 'pending' && nextRunAt.getTime() > Date.now() + 60_000;

eachStore('jobs in threads', ({ open }) => {
  it('runs the default export of a module in a thread, with progress, log lines and a result', async () => {
    const mill = aMill(open());
    const job = await runIn(mill, 'tell', isOver);
    expect(job).toMatchObject({
      status: 'completed',
      progress: { half: true },
      result: { id: job.id, attempt: 1, data: { do: 'tell' }, isMainThread: false },
    });
    expect(job.logs?.[0]?.message).toBe('from the thread');
  });
});

it('keeps name, code and retryAfter of an error that a handler throws in a thread', async () => {
  const mill = aMill(memory());
  const errors: Error[] = [];
  mill.on('job:fail', ({ error }) => errors.push(error));
  const job = await runIn(mill, 'fail', isBack);
  expect(errors[0]).toMatchObject({ name: 'RangeError', message: 'too wide', code: 'E_WIDE' });
  expect(job.nextRunAt.getTime()).toBeGreaterThan(Date.now() + 90 * 60_000);
});

it('fails a job for good when its handler throws a FatalError in a thread', async () => {
  expect(await runIn(aMill(memory()), 'fatal', isOver)).toMatchObject({
    status: 'failed',
    failReason: 'never again',
  });
});

it('defers a job from a thread without using an attempt', async () => {
  expect(await runIn(aMill(memory()), 'defer', isBack)).toMatchObject({ failCount: 0 });
});

it.each([
  ['complete', 'complete({ transaction }) does not work in a thread'],
  ['function', 'result.deep[0] is a function, which cannot cross between threads unchanged'],
  ['class', 'result.ids[0] is an instance of ObjectId, which cannot cross between threads unchanged'],
  ['progressClass', 'progress.at is an instance of Decimal128'],
  ['logClass', 'log fields.at is an instance of Long'],
  ['exit', 'job "resize": its thread died: worker exited with code: 3'],
  ['throw', 'job "resize": its thread died: thrown where nobody catches it'],
])('fails a job whose handler does what cannot cross (%s), and says why', async (what, reason) => {
  const job = await runIn(aMill(memory()), what, isBack);
  expect(job.failCount).toBe(1);
  expect(job.failReason).toContain(reason);
});

it('fails a job whose payload cannot enter a thread, and names the path', async () => {
  const mill = aMill(freshMongodb());
  mill.work(resize, { thread });
  await mill.start();
  const payload = { do: 'tell', deep: { owner: new ObjectId() } };
  const { id } = await mill.enqueue(resize, payload);
  await until('it has failed', async () => (await mill.jobs.get(id))?.failCount === 1);
  expect((await mill.jobs.get(id))?.failReason).toBe(
    'data.deep.owner is an instance of ObjectId, which cannot cross between threads unchanged; use a string or a plain object.',
  );
});

it('passes dates, bytes, lists and plain objects between threads', async () => {
  const job = await runIn(aMill(memory()), 'keep', isOver);
  expect(job.result).toEqual({ at: new Date(0), bytes: 2, list: [null, { a: 1 }] });
});

it('goes on with the other jobs of a name when a thread of it dies', async () => {
  const mill = aMill(memory());
  mill.work(resize, { thread, concurrency: 2 });
  await mill.start();
  const heeding = await mill.enqueue(resize, { do: 'heed' });
  await until('it runs', async () => (await mill.jobs.get(heeding.id))?.progress === 'began');
  const dying = await mill.enqueue(resize, { do: 'exit' });
  await until('it has failed', async () => (await mill.jobs.get(dying.id))?.failCount === 1);
  const after = await mill.enqueue(resize, { do: 'tell' });
  await until('the next one ran', async () => (await mill.jobs.get(after.id))?.status === 'completed');
  expect(await mill.jobs.get(heeding.id)).toMatchObject({ status: 'processing', progress: 'began' });
});

it('survives a thread that dies after its job has ended, and says so', async () => {
  const said: string[] = [];
  const nothing = (): void => undefined;
  const error = (_fields: object, text: string): void => void said.push(text);
  const logger = { info: nothing, warn: nothing, debug: nothing, error };
  const mill = aMill(memory(), { logger });
  mill.work(resize, { thread });
  await mill.start();
  const { id } = await mill.enqueue(resize, { do: 'throwLater' });
  await mill.jobs.result(id);
  await until('it is told', () => said.some((text) => text.includes('a thread died while it ran no job')));
  const after = await mill.enqueue(resize, { do: 'tell' });
  await until('the next one ran', async () => (await mill.jobs.get(after.id))?.status === 'completed');
});

it('hears the last words of a thread that died', async () => {
  for (let round = 0; round < 5; round += 1)
    expect(await runIn(aMill(memory()), 'exitAtOnce', (job) => isOver(job) || isBack(job))).toMatchObject({
      status: 'completed',
      result: 'last words',
    });
});

it('fails a job whose thread runs out of memory, and goes on', async () => {
  const script = new URL('./thread-modules/out-of-memory.ts', import.meta.url);
  const child = fork(script, { execArgv: ['--import', 'tsx', '--max-old-space-size=128'], silent: true });
  const [told] = (await once(child, 'message')) as [unknown];
  child.kill();
  expect(told).toEqual({
    failReason: expect.stringMatching(/its thread died: .*memory limit/u) as string,
    next: 'completed',
  });
});

it('ends a handler that ignores its signal at its timeout, and harms no other job', async () => {
  const mill = aMill(memory());
  const slow = defineJob<{ do: string }>('slow', { retryPolicy });
  mill.work(slow, { thread, concurrency: 2 });
  await mill.start();
  const heeding = await mill.enqueue(slow, { do: 'heed' });
  const spinning = await mill.enqueue(slow, { do: 'spin' }, { timeout: 300 });
  await until('it has timed out', async () => (await mill.jobs.get(spinning.id))?.failCount === 1);
  // The thread is gone: the mill knows of no handler that runs past its timeout.
  await until('its thread has ended', () => mill.health().abandoned === 0);
  const after = await mill.enqueue(slow, { do: 'tell' });
  await until('the next one ran', async () => (await mill.jobs.get(after.id))?.status === 'completed');
  expect(await mill.jobs.get(heeding.id)).toMatchObject({ status: 'processing', progress: 'began' });
});

it('passes a cancel on to the signal in a thread', async () => {
  const mill = aMill(memory());
  mill.work(resize, { thread });
  await mill.start();
  const { id } = await mill.enqueue(resize, { do: 'heed' });
  await until('it runs', async () => (await mill.jobs.get(id))?.progress === 'began');
  await mill.jobs.cancel(id);
  await until('it is cancelled', async () => (await mill.jobs.get(id))?.status === 'cancelled');
});

it('hands a job in a thread back at a stop, without using an attempt', async () => {
  const mill = aMill(memory());
  mill.work(resize, { thread });
  await mill.start();
  const { id } = await mill.enqueue(resize, { do: 'heed' });
  await until('it runs', async () => (await mill.jobs.get(id))?.progress === 'began');
  await mill.stop({ timeout: 0 });
  expect(await mill.jobs.get(id)).toMatchObject({ status: 'pending', failCount: 0 });
});

it('refuses what cannot be a thread when it is defined', () => {
  const mill = aMill(memory());
  const missing = new URL('./thread-modules/missing.mjs', import.meta.url);
  const handled = mill.work.bind(mill) as (...given: unknown[]) => void;
  expect(() => mill.work(resize, { thread: missing })).toThrow(
    /thread names a file that does not exist: .*missing/,
  );
  expect(() => mill.work(resize, { thread: './resize.js' })).toThrow(/thread must be a file: URL/);
  expect(() => mill.work(resize, { thread: 'https://example.com/a.js' })).toThrow(
    /thread must be a file: URL/,
  );
  expect(() => handled(resize, { thread: () => 1 })).toThrow(/thread must be a file: URL/);
  expect(() => handled(resize, { thread }, () => 1)).toThrow(/either a handler or `thread`/);
  expect(() => mill.job('both', { thread, transactional: true })).toThrow(/`transactional: true`/);
  expect(() => mill.batch(resize, { thread } as never, () => 1)).toThrow(/unknown option "thread"/);
});

it('refuses to start with a module that has no handler', async () => {
  const mill = aMill(memory());
  const module = new URL('./thread-modules/without-default.mjs', import.meta.url);
  mill.job('bare', { thread: module.href });
  await expect(mill.start()).rejects.toThrow(
    /job "bare": .*without-default.* no default export that is a function/,
  );
});
