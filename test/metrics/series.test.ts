import { describe, expect, it, vi } from 'vitest';
import { memory } from '../../src/memory/index.js';
import { virtualClock } from '../../src/testing/index.js';
import { keepLines } from '../reactive/mills.js';
import { aMill } from '../support/mills.js';

const START = new Date('2026-01-01T12:00:00Z');

describe('metrics.series', () => {
  it('the series sums the work of each minute over instances, and includes backlog and lag', async () => {
    const clock = virtualClock(START);
    const store = memory({ clock });
    const mills = [aMill(store), aMill(store)];
    let failing = true;
    for (const mill of mills) {
      mill.job('mail', () => undefined);
      mill.job('report', { retryPolicy: { maxAttempts: 2, type: 'fixed', interval: '10s' } }, () => {
        if (failing) throw new Error('no paper');
      });
      await mill.start();
    }
    await mills[0]!.enqueueMany(Array.from({ length: 10 }, () => ({ name: 'mail' })));
    await mills[0]!.enqueue('report');
    await mills[0]!.enqueue('nobody-runs-this');
    await clock.advance('65s');
    failing = false;
    await mills[1]!.enqueue('report');
    await clock.advance('10s');
    const points = await mills[1]!.metrics.series();
    const [first, second] = [START, new Date(START.getTime() + 60_000)];
    const brief = points.map(({ at, name, started, done, failed, retried, backlog }) =>
      [at.toISOString().slice(11, 16), name, started, done, failed, retried, backlog].join(' '),
    );
    expect(brief).toEqual([
      '12:00 mail 10 10 0 0 ',
      '12:00 report 2 0 1 1 ',
      '12:01 mail 0 0 0 0 0',
      '12:01 nobody-runs-this 0 0 0 0 1',
      '12:01 report 1 1 0 0 0',
    ]);
    expect(points.find(({ backlog }) => backlog === 1)).toMatchObject({ at: second, lagMs: 60_000 });
    expect(await mills[0]!.metrics.series({ to: first, name: 'mail' })).toHaveLength(1);
    expect(await mills[0]!.metrics.series({ from: second, kind: 'job' })).toHaveLength(3);
    expect(await mills[0]!.metrics.series({ kind: 'task' })).toEqual([]);
  });

  it('the series is not written while nothing happens', async () => {
    const clock = virtualClock(START);
    const store = memory({ clock });
    const save = vi.spyOn(store.metrics, 'saveMinutes');
    const mill = aMill(store);
    mill.job('mail', () => undefined);
    await mill.start();
    await clock.advance('10m');
    expect(save).not.toHaveBeenCalled();
    await mill.enqueue('mail');
    await clock.advance('10m');
    expect(save).toHaveBeenCalledTimes(1);
  });

  it('the series keeps one day', async () => {
    const clock = virtualClock(START);
    const mill = aMill(memory({ clock }));
    mill.job('mail', () => undefined);
    await mill.start();
    await mill.enqueue('mail');
    await clock.advance('24h');
    await mill.enqueue('mail');
    await clock.advance('2m');
    const points = await mill.metrics.series({ from: START });
    expect(points.filter(({ done }) => done > 0).map(({ at }) => at)).toEqual([
      new Date(START.getTime() + 86_400_000),
    ]);
  });

  it('a minute that could not be stored is stored with the next one, and the error is logged once', async () => {
    const clock = virtualClock(START);
    const store = memory({ clock });
    const { logger, lines } = keepLines();
    const mill = aMill(store, { logger });
    mill.job('mail', () => undefined);
    await mill.start();
    const save = vi.spyOn(store.metrics, 'saveMinutes').mockRejectedValue(new Error('down'));
    await mill.enqueue('mail');
    await clock.advance('10s');
    await mill.enqueue('mail');
    await clock.advance('10s');
    expect(lines.filter(({ text }) => text.includes('could not be stored: down'))).toHaveLength(1);
    save.mockRestore();
    await mill.enqueue('mail');
    await clock.advance('10s');
    expect(await mill.metrics.series()).toMatchObject([{ name: 'mail', done: 3 }]);
  });

  it('metrics.series rejects bad options', async () => {
    const mill = aMill(memory());
    await expect(mill.metrics.series({ from: new Date(2), to: new Date(1) })).rejects.toThrow(
      'must not be after to',
    );
    await expect(mill.metrics.series({ kind: 'jobs' as never })).rejects.toThrow('Did you mean "job"?');
    await expect(mill.metrics.series({ since: new Date() } as never)).rejects.toThrow(
      'unknown option "since"',
    );
  });
});
