import { describe, expect, it, vi } from 'vitest';
import type { Logger } from '../../src/core/logger.js';
import { Abandoned } from '../../src/engine/abandoned.js';
import { Attempt } from '../../src/engine/attempt.js';
import { memory } from '../../src/memory/index.js';
import { virtualClock } from '../../src/testing/index.js';
import { aMill, gate } from '../support/mills.js';
import { aClaimed } from './support.js';

function aLogger() {
  const lines: { level: string; fields: object; message: string }[] = [];
  const at = (level: string) => (fields: object, message: string) =>
    void lines.push({ level, fields, message });
  const logger: Logger = { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') };
  return { logger, lines };
}

const anAttempt = (id: string): Attempt =>
  new Attempt(aClaimed({ id, name: 'slow' }), 0, () => ({
    isHeld: () => true,
    note: () => undefined,
    unwritten: () => undefined,
  }));

describe('handlers that ignore their timeout', () => {
  it('logs handlers that ignore their timeout at once, and every minute until they end', async () => {
    const clock = virtualClock();
    const { logger, lines } = aLogger();
    const abandoned = new Abandoned(clock, logger, 5, () => undefined);
    const end = gate();
    abandoned.add(anAttempt('j1'), end.promise);
    expect(lines).toEqual([
      {
        level: 'warn',
        fields: { handlers: [{ name: 'slow', id: 'j1', startedAt: new Date(0) }] },
        message: 'handlers that ignore their signal and run past their timeout: slow j1',
      },
    ]);
    const second = gate();
    abandoned.add(anAttempt('j2'), second.promise);
    await clock.advance('60s');
    expect(lines).toHaveLength(2);
    expect(lines[1]!.message).toContain('slow j1, slow j2');
    end.open();
    second.open();
    await clock.advance('10m');
    expect(lines).toHaveLength(2);
    expect(abandoned.count).toBe(0);
  });

  it('reports too many abandoned handlers at the limit, and calls back when one ends', async () => {
    const fewer = vi.fn();
    const { logger, lines } = aLogger();
    const abandoned = new Abandoned(virtualClock(), logger, 1, fewer);
    expect(abandoned.tooMany).toBe(false);
    const end = gate();
    abandoned.add(anAttempt('j1'), end.promise);
    expect(abandoned).toMatchObject({ count: 1, tooMany: true });
    expect(lines[0]!.message).toContain('this instance claims no more work until some of them end');
    end.open();
    await end.promise;
    expect(abandoned).toMatchObject({ count: 0, tooMany: false });
    expect(fewer).toHaveBeenCalledTimes(1);
    abandoned.stop();
  });
});

describe('an instance with handlers that ignore their timeout', () => {
  async function aStuckMill(maxAbandoned: number) {
    const clock = virtualClock('2025-01-01');
    const { logger, lines } = aLogger();
    const mill = aMill(memory({ clock }), { logger, maxAbandoned });
    const end = gate();
    const stuck = mill.job(
      'stuck',
      { timeout: '1s', retryPolicy: { type: 'fixed', interval: '1h' } },
      () => end.promise,
    );
    const quick = mill.job('quick', () => 'done');
    await mill.start();
    return { clock, mill, stuck, quick, end, lines };
  }

  it('an abandoned handler fails its attempt and frees its slot for other work', async () => {
    const { clock, mill, stuck, quick, end } = await aStuckMill(5);
    const jobs = await stuck.enqueueMany([{ data: 1 }, { data: 2 }]);
    await clock.advance('2s');
    expect(mill.health()).toMatchObject({ ok: true, running: 0, abandoned: 2 });
    expect(await mill.jobs.get(jobs[0]!.id)).toMatchObject({
      status: 'pending',
      failCount: 1,
      failReason: expect.stringContaining('ran past its timeout of 1000 ms') as string,
    });
    const { id } = await quick.enqueue({});
    await clock.advance('1s');
    expect(await mill.jobs.get(id)).toMatchObject({ status: 'completed' });
    end.open();
  });

  it('an instance stops claiming at maxAbandoned, turns unhealthy, and resumes when a handler ends', async () => {
    const { clock, mill, stuck, quick, end, lines } = await aStuckMill(2);
    await stuck.enqueueMany([{ data: 1 }, { data: 2 }]);
    expect(mill.isHealthy()).toBe(true);
    await clock.advance('2s');
    expect(mill.isHealthy()).toBe(false);
    expect(mill.health().reasons).toEqual(['2 handlers ignore their timeout (maxAbandoned)']);
    expect(lines.some(({ level, message }) => level === 'warn' && message.includes('stuck'))).toBe(true);

    const { id } = await quick.enqueue({});
    await clock.advance('10m');
    expect(await mill.jobs.get(id)).toMatchObject({ status: 'pending', failCount: 0 });

    end.open();
    await clock.advance('1s');
    expect(mill.isHealthy()).toBe(true);
    expect(await mill.jobs.get(id)).toMatchObject({ status: 'completed' });
  });

  it('an abandoned handler can no longer write progress, log lines or a result', async () => {
    const clock = virtualClock('2025-01-01');
    const mill = aMill(memory({ clock }));
    const end = gate();
    const late = gate();
    const type = mill.job(
      'late',
      { timeout: '1s', retryPolicy: { type: 'fixed', interval: '1h' } },
      async (job) => {
        if (job.attempt > 1) return 'second';
        await end.promise;
        job.progress('too late');
        job.log('too late');
        late.open();
        return 'first';
      },
    );
    await mill.start();
    const { id } = await type.enqueue({});
    await clock.advance('2s');
    end.open();
    await late.promise;
    await clock.advance('10s');
    expect(await mill.jobs.get(id)).toMatchObject({ status: 'pending', failCount: 1 });
    await clock.advance('1h');
    const job = await mill.jobs.get(id);
    expect(job).toMatchObject({ status: 'completed', result: 'second' });
    expect(job).not.toHaveProperty('progress');
    expect(job).not.toHaveProperty('logs');
  });
});
