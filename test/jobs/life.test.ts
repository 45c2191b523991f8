import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { describe, expect, inject, it, vi } from 'vitest';
import { StoppingError, Tidemill } from '../../src/index.js';
import { memory } from '../../src/memory/index.js';
import { virtualClock } from '../../src/testing/index.js';
import { aMill, gate } from '../support/mills.js';
import { freshSchema, freshUri } from '../support/stores.js';

describe('mill.start', () => {
  it('a mill that was not started enqueues, but runs nothing', async () => {
    const mill = aMill(memory());
    const handler = vi.fn();
    const type = mill.job('a', handler);
    const { id } = await type.enqueue({});
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(handler).not.toHaveBeenCalled();
    expect(await mill.jobs.get(id)).toMatchObject({ status: 'pending' });
    expect(mill.isHealthy()).toBe(false);
    expect(mill.health().reasons).toEqual(['not started']);
  });

  it('concurrent and repeated calls of start() start one engine', async () => {
    const mill = aMill(memory(), { instanceId: 'only' });
    const seen: number[] = [];
    const type = mill.job<number>('a', ({ data }) => void seen.push(data));
    await Promise.all([mill.start(), mill.start()]);
    await mill.start();
    await mill.jobs.result((await type.enqueue(1)).id);
    expect(seen).toEqual([1]);
    expect(mill.isHealthy()).toBe(true);
  });

  it('a mill can start again after stop(), repeatedly', async () => {
    const mill = aMill(memory(), { instanceId: 'again' });
    const type = mill.job<number>('a', ({ data }) => data);
    for (let round = 0; round < 3; round += 1) {
      await mill.start();
      expect(await mill.jobs.result((await type.enqueue(round)).id)).toBe(round);
      await mill.stop();
      expect(mill.health()).toMatchObject({ ok: false, reasons: ['not started'], running: 0 });
    }
  });

  it('start() during a stop waits for it', async () => {
    const mill = aMill(memory(), { instanceId: 'me' });
    const type = mill.job('a', () => 'ran');
    await mill.start();
    const stopping = mill.stop();
    const starting = mill.start();
    await Promise.all([stopping, starting]);
    expect(await mill.jobs.result((await type.enqueue({})).id)).toBe('ran');
  });

  it('stop() right after start() leaves nothing running', async () => {
    const store = memory();
    const mill = aMill(store, { instanceId: 'me' });
    mill.job('a', () => 'ran');
    const starting = mill.start();
    const stopping = mill.stop();
    await Promise.all([starting, stopping]);
    expect(mill.health().reasons).toEqual(['not started']);
    expect((await store.instances.list()).instances).toEqual([]);
    await mill.start();
    expect(mill.isHealthy()).toBe(true);
  });

  it('start() rejects if a live process has the same instanceId, and names it', async () => {
    const store = memory();
    const [first, second] = [aMill(store, { instanceId: 'twin' }), aMill(store, { instanceId: 'twin' })];
    await first.start();
    await expect(second.start()).rejects.toMatchObject({
      code: 'INSTANCE_ID_TAKEN',
      message: expect.stringContaining(`pid ${String(process.pid)}`) as string,
    });
    await first.stop();
    await second.start();
    expect(second.isHealthy()).toBe(true);
  });

  it('stop() ends a start() that waits for a process with the same instanceId', async () => {
    const store = memory();
    const dead = { instanceId: 'me', life: 'old', host: 'h', pid: 1, names: [], tasks: [], policies: {} };
    await store.instances.register({ ...dead, leaseMs: -1 });
    // Without the stop, it would wait for a whole lease.
    const mill = aMill(store, { instanceId: 'me', leaseDuration: '5m' });
    mill.job('a', () => undefined);
    const starting = mill.start();
    const refused = expect(starting).rejects.toBeInstanceOf(StoppingError);
    await mill.stop();
    await refused;
    expect((await store.instances.list()).instances.map(({ life }) => life)).toEqual(['old']);
  });
});

describe('mill.stop', () => {
  it('stop() waits for running handlers and claims nothing more', async () => {
    const mill = aMill(memory());
    const [began, end] = [gate(), gate()];
    const type = mill.job('a', { concurrency: 1 }, async () => {
      began.open();
      await end.promise;
      return 'finished';
    });
    const [first, second] = await type.enqueueMany([{ data: 1 }, { data: 2 }]);
    await mill.start();
    await began.promise;
    let stopped = false;
    const stopping = mill.stop().then(() => (stopped = true));
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect(stopped).toBe(false);
    end.open();
    await stopping;
    expect(await mill.jobs.get(first!.id)).toMatchObject({ status: 'completed', result: 'finished' });
    expect(await mill.jobs.get(second!.id)).toMatchObject({ status: 'pending', failCount: 0 });
  });

  it('stop() hands back jobs that outlast the timeout without using an attempt, and logs them', async () => {
    const clock = virtualClock('2025-01-01');
    const store = memory({ clock });
    const warn = vi.fn();
    const quiet = (): undefined => undefined;
    const mill = aMill(store, {
      shutdownTimeout: '10s',
      logger: { debug: quiet, info: quiet, warn, error: quiet },
    });
    let reason: unknown;
    const type = mill.job('long', ({ signal }) => {
      signal.addEventListener('abort', () => {
        reason = signal.reason;
      });
      return new Promise(() => undefined);
    });
    await mill.start();
    const { id } = await type.enqueue({});
    await clock.advance('1s');
    const stopping = mill.stop();
    await clock.advance('9s');
    expect(reason).toBeUndefined();
    await clock.advance('2s');
    await stopping;
    expect(reason).toBeInstanceOf(StoppingError);
    expect(await mill.jobs.get(id)).toMatchObject({ status: 'pending', failCount: 0, lockedAt: null });
    expect(warn).toHaveBeenCalledWith({ jobs: [id] }, expect.stringContaining(`long ${id}`));

    const next = aMill(store);
    const attempts: number[] = [];
    next.job('long', ({ attempt }) => void attempts.push(attempt));
    await next.start();
    await clock.advance('1s');
    expect(attempts).toEqual([1]);
  });

  it('stop() hands back a job whose handler throws on its signal, without using an attempt', async () => {
    const mill = aMill(memory());
    const began = gate();
    const type = mill.job('a', ({ signal }) => {
      began.open();
      return new Promise((_resolve, reject) => {
        signal.addEventListener('abort', () => reject(new Error('interrupted')));
      });
    });
    await mill.start();
    const { id } = await type.enqueue({});
    await began.promise;
    await mill.stop({ timeout: 0 });
    expect(await mill.jobs.get(id)).toMatchObject({ status: 'pending', failCount: 0 });
  });

  it('stop() keeps the result of a handler that returns on its signal', async () => {
    const warn = vi.fn();
    const quiet = (): undefined => undefined;
    const mill = aMill(memory(), { logger: { debug: quiet, info: quiet, warn, error: quiet } });
    const began = gate();
    const type = mill.job('a', ({ signal }) => {
      began.open();
      return new Promise((resolve) => {
        signal.addEventListener('abort', () => resolve('saved'));
      });
    });
    await mill.start();
    const { id } = await type.enqueue({});
    await began.promise;
    await mill.stop({ timeout: 0 });
    expect(await mill.jobs.get(id)).toMatchObject({ status: 'completed', result: 'saved' });
    expect(warn).not.toHaveBeenCalled();
  });

  it('stop() hands back prefetched jobs', async () => {
    const mill = aMill(memory(), { concurrency: 1 });
    const [lasting, end] = [gate(), gate()];
    let ran = 0;
    const type = mill.job<number>('a', { concurrency: 1 }, async () => {
      ran += 1;
      // Short jobs first, until more are prefetched; then one that lasts.
      if (mill.health().buffered === 0) return;
      lasting.open();
      await end.promise;
    });
    await type.enqueueMany(Array.from({ length: 500 }, (_, data) => ({ data })));
    await mill.start();
    await lasting.promise;
    const stopping = mill.stop();
    end.open();
    await stopping;
    expect(await mill.jobs.count({ status: 'processing' })).toBe(0);
    const { items } = await mill.jobs.find({ status: 'pending' }, { limit: 1_000 });
    expect(items).toHaveLength(500 - ran);
    expect(items.every(({ failCount, lockedAt }) => failCount === 0 && lockedAt === null)).toBe(true);
    expect(items.every(({ history }) => (history ?? []).length === 0)).toBe(true);
  });

  it('concurrent calls of stop() are one stop', async () => {
    const mill = aMill(memory());
    mill.job('a', () => 1);
    await mill.start();
    const [first, second] = [mill.stop(), mill.stop({ timeout: 5 })];
    expect(second).toBe(first);
    await first;
    await mill.stop();
  });

  it('stop() is harmless before start(), and twice', async () => {
    const mill = aMill(memory());
    await mill.stop();
    await mill.stop();
    expect(await mill.enqueue('a', {})).toMatchObject({ outcome: 'created' });
  });

  it('await using stops the mill', async () => {
    const store = memory();
    {
      await using mill = new Tidemill({ store, logger: false });
      mill.job('a', () => 1);
      await mill.start();
      expect((await store.instances.list()).instances).toHaveLength(1);
    }
    expect((await store.instances.list()).instances).toEqual([]);
  });

  it('stop() keeps the lease while it waits, so that no other instance takes over its work', async () => {
    const clock = virtualClock('2025-01-01');
    const store = memory({ clock });
    const [first, second] = [aMill(store, { shutdownTimeout: '10m' }), aMill(store)];
    const end = gate();
    let runs = 0;
    for (const mill of [first, second])
      mill.job('a', () => {
        runs += 1;
        return end.promise;
      });
    const { id } = await first.enqueue('a', {});
    await first.start();
    await clock.advance('1s');
    await second.start();
    const stopping = first.stop();
    await clock.advance('5m');
    expect(runs).toBe(1);
    end.open();
    await clock.advance('1s');
    await stopping;
    expect(await second.jobs.get(id)).toMatchObject({ status: 'completed', failCount: 0 });
    expect(runs).toBe(1);
  });
});

describe('a call after stop', () => {
  it('opens the store again, which is released by itself five seconds after the last such call', async () => {
    const clock = virtualClock('2025-01-01');
    const store = memory({ clock });
    const release = vi.spyOn(store, 'release');
    const mill = aMill(store);
    mill.job('a', () => 1);
    await mill.start();
    await mill.stop();
    expect(release).toHaveBeenCalledTimes(1);
    expect((await mill.enqueue('a', {})).outcome).toBe('created');
    await clock.advance('4s');
    expect(await mill.jobs.count()).toBe(1);
    await clock.advance('4s');
    expect(release).toHaveBeenCalledTimes(1);
    await clock.advance('1s');
    expect(release).toHaveBeenCalledTimes(2);
  });

  it('does not take the store away from a mill that was started again', async () => {
    const clock = virtualClock('2025-01-01');
    const store = memory({ clock });
    const release = vi.spyOn(store, 'release');
    const mill = aMill(store);
    const ran: string[] = [];
    mill.job('a', ({ id }) => void ran.push(id));
    await mill.start();
    await mill.stop();
    const { id } = await mill.enqueue('a', {});
    await mill.start();
    await clock.advance('1m');
    expect(ran).toEqual([id]);
    expect(release).toHaveBeenCalledTimes(1);
  });
});

describe('a process that uses the library', () => {
  const source = (path: string): string =>
    pathToFileURL(resolve(import.meta.dirname, '../../src', path)).href;

  async function run(body: string): Promise<{ code: number | null; output: string }> {
    const folder = await mkdtemp(join(tmpdir(), 'tidemill-life-'));
    const script = `
      import { Tidemill } from '${source('index.ts')}';
      import { memory } from '${source('memory/index.ts')}';
      ${body}
    `;
    try {
      await writeFile(join(folder, 'script.mts'), script);
      const child = spawn(process.execPath, ['--import', 'tsx', join(folder, 'script.mts')], {
        stdio: ['ignore', 'pipe', 'pipe'],
        timeout: 50_000,
      });
      let output = '';
      child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
      child.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()));
      const [code] = (await once(child, 'close')) as [number | null];
      return { code, output };
    } finally {
      await rm(folder, { recursive: true });
    }
  }

  it('a process exits by itself after stop()', async () => {
    const { code, output } = await run(`
      const mill = new Tidemill({ store: memory(), logger: false });
      const type = mill.job('a', { timeout: '1h' }, (job) => { job.progress(1); job.log('x'); return 5; });
      await mill.start();
      const { id } = await type.enqueue({});
      await mill.schedule('@daily', 'a', {});
      await type.enqueue({}, { delay: '40d' });
      console.log('result', await mill.jobs.result(id, { timeout: '1h' }));
      mill.jobs.result((await type.enqueue({}, { delay: '1d' })).id).catch((error) => console.log(error.code));
      await mill.stop();
      console.log('stopped');
    `);
    expect(output).toContain('result 5');
    expect(output).toContain('STOPPED');
    expect(output).toContain('stopped');
    expect(code).toBe(0);
  });

  it.each([
    ['mongodb', () => `mongodb({ uri: ${JSON.stringify(freshUri())} })`],
    [
      'postgres',
      () => `postgres({ url: ${JSON.stringify(inject('postgresStoreUrl'))}, schema: '${freshSchema()}' })`,
    ],
  ] as const)('a process that enqueues after stop() exits by itself (%s)', async (kind, store) => {
    const { code, output } = await run(`
      import { ${kind} } from '${source(`${kind}/index.ts`)}';
      const mill = new Tidemill({ store: ${store()}, logger: false });
      mill.job('a', () => 5);
      await mill.start();
      console.log('result', await mill.jobs.result((await mill.enqueue('a', {})).id));
      await mill.stop();
      console.log((await mill.enqueue('a', {})).outcome, await mill.jobs.count({ status: 'pending' }));
    `);
    expect(output.trim().split('\n')).toEqual(['result 5', 'created 1']);
    expect(code).toBe(0);
  });

  it('a process that only enqueued exits by itself without stop()', async () => {
    const { code, output } = await run(`
      const mill = new Tidemill({ store: 'memory:' });
      console.log((await mill.enqueue('a', {})).outcome);
    `);
    expect(output.trim()).toBe('created');
    expect(code).toBe(0);
  });
});
