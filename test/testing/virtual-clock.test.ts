import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { memory } from '../../src/memory/index.js';
import { virtualClock, type VirtualClock } from '../../src/testing/index.js';
import { aMill, gate } from '../support/mills.js';

const START = '2025-01-01T00:00:00Z';
const iso = (clock: VirtualClock): string => new Date(clock.now()).toISOString();

describe('virtualClock', () => {
  it('a virtual clock stands still until it is advanced', async () => {
    const clock = virtualClock(START);
    const before = clock.now();
    await new Promise((resolve) => setTimeout(resolve, 15));
    expect(clock.now()).toBe(before);
    expect(before).toBe(Date.parse(START));
    await clock.advance('1h30m');
    expect(iso(clock)).toBe('2025-01-01T01:30:00.000Z');
    await clock.advance(1);
    expect(iso(clock)).toBe('2025-01-01T01:30:00.001Z');
  });

  it('a virtual clock begins at any date, text or number, and in 1970 by default', () => {
    expect(virtualClock().now()).toBe(0);
    expect(virtualClock(5).now()).toBe(5);
    expect(virtualClock(new Date(7)).now()).toBe(7);
    expect(virtualClock('1970-01-01T00:00:01Z').now()).toBe(1_000);
  });

  it('a virtual clock rejects an invalid start and an invalid duration', async () => {
    expect(() => virtualClock('yesterday')).toThrow('virtualClock: start must be a valid Date');
    const clock = virtualClock();
    await expect(clock.advance('soon')).rejects.toThrow('clock.advance: duration must be a duration');
    await expect(clock.advance(-1)).rejects.toThrow('clock.advance: duration must be a duration');
    expect(clock.now()).toBe(0);
  });

  it('a virtual clock fires timers in the order of their times, then in the order they were set', async () => {
    const clock = virtualClock();
    const fired: string[] = [];
    clock.timer(20, () => fired.push(`late at ${String(clock.now())}`));
    clock.timer(10, () => fired.push(`first at ${String(clock.now())}`));
    clock.timer(10, () => fired.push(`second at ${String(clock.now())}`));
    clock.timer(0, () => fired.push(`now at ${String(clock.now())}`));
    clock.timer(21, () => fired.push('too late'));
    await clock.advance(20);
    expect(fired).toEqual(['now at 0', 'first at 10', 'second at 10', 'late at 20']);
  });

  it('a virtual clock fires timers that timers set, if they come due on the way', async () => {
    const clock = virtualClock();
    const fired: number[] = [];
    const again = (): void => {
      fired.push(clock.now());
      clock.timer(10, again);
    };
    clock.timer(10, again);
    await clock.advance(35);
    expect(fired).toEqual([10, 20, 30]);
  });

  it('a virtual clock does not stop for housekeeping, which runs once at its next stop', async () => {
    const clock = virtualClock();
    const fired: string[] = [];
    const sweep = (): void => {
      fired.push(`sweep at ${String(clock.now())}`);
      clock.timer(10, sweep, { housekeeping: true });
    };
    clock.timer(10, sweep, { housekeeping: true });
    clock.timer(35, () => fired.push(`due at ${String(clock.now())}`));
    await clock.advance(100);
    expect(fired).toEqual(['sweep at 35', 'due at 35', 'sweep at 100']);
    await clock.advance(9);
    expect(fired).toHaveLength(3);
    await clock.advance(1);
    expect(fired[3]).toBe('sweep at 110');
  });

  it('a virtual clock fires a timer that housekeeping sets for the same moment, and none that it cancels', async () => {
    const clock = virtualClock();
    const fired: string[] = [];
    const due = clock.timer(20, () => fired.push('cancelled'));
    const sweep = (): void => {
      due.cancel();
      clock.timer(0, () => fired.push(`set at ${String(clock.now())}`));
    };
    clock.timer(5, sweep, { housekeeping: true });
    await clock.advance(20);
    expect(fired).toEqual(['set at 20']);
  });

  it('a virtual clock never fires a cancelled or an infinite timer', async () => {
    const clock = virtualClock();
    const fired: string[] = [];
    const timer = clock.timer(10, () => fired.push('cancelled'));
    clock.timer(Infinity, () => fired.push('endless'));
    timer.cancel();
    await clock.advance('10000d');
    expect(fired).toEqual([]);
  });

  it('a virtual clock fires every timer once, on time and in order, whatever was set', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.integer({ min: 0, max: 1_000 }), { maxLength: 12 }),
        fc.array(fc.integer({ min: 0, max: 400 }), { minLength: 1, maxLength: 4 }),
        async (delays, steps) => {
          const clock = virtualClock();
          const fired: number[] = [];
          for (const delay of delays)
            clock.timer(delay, () => {
              expect(clock.now()).toBe(delay);
              fired.push(delay);
            });
          for (const step of steps) await clock.advance(step);
          const end = steps.reduce((a, b) => a + b, 0);
          expect(clock.now()).toBe(end);
          expect(fired).toEqual(delays.filter((delay) => delay <= end).sort((a, b) => a - b));
        },
      ),
      { numRuns: 20 },
    );
  });

  it('a virtual clock waits for tracked work in real time before it moves on', async () => {
    const clock = virtualClock();
    let done = false;
    clock.timer(10, () => {
      clock.track?.(
        new Promise<void>((resolve) => setTimeout(resolve, 10)).then(() => {
          done = true;
        }),
      );
    });
    clock.timer(20, () => expect(done).toBe(true));
    await clock.advance(20);
    expect(done).toBe(true);
  });

  it('a virtual clock does not wait forever for work that waits for the test itself', async () => {
    const clock = virtualClock();
    const end = gate();
    clock.track?.(end.promise);
    await clock.advance('1h');
    expect(clock.now()).toBe(3_600_000);
    end.open();
  });
});

describe('a mill on a virtual clock', () => {
  it('runs everything that comes due on the way, in order, each at its own time', async () => {
    const clock = virtualClock(START);
    const mill = aMill(memory({ clock }));
    const ran: string[] = [];
    const type = mill.job<string>('note', ({ data }) => void ran.push(`${data} ${iso(clock)}`));
    await mill.start();
    await type.enqueue('third', { delay: '2h' });
    await type.enqueue('first', { delay: '90s' });
    await type.enqueue('second', { runAt: new Date('2025-01-01T01:00:00.123Z') });
    await type.enqueue('later', { delay: '2h30m' });
    await clock.advance('2h15m');
    expect(ran).toEqual([
      'first 2025-01-01T00:01:30.000Z',
      'second 2025-01-01T01:00:00.123Z',
      'third 2025-01-01T02:00:00.000Z',
    ]);
    await clock.advance('1h');
    expect(ran[3]).toBe('later 2025-01-01T02:30:00.000Z');
  });

  it('runs a job that is due at the very end of an advance', async () => {
    const clock = virtualClock(START);
    const mill = aMill(memory({ clock }));
    const type = mill.job('exact', () => iso(clock));
    await mill.start();
    const { id } = await type.enqueue({}, { delay: '1h' });
    await clock.advance('59m59s');
    expect(await mill.jobs.get(id)).toMatchObject({ status: 'pending' });
    await clock.advance('1s');
    expect(await mill.jobs.get(id)).toMatchObject({
      status: 'completed',
      result: '2025-01-01T01:00:00.000Z',
    });
  });

  it('runs what a handler enqueues on the way', async () => {
    const clock = virtualClock(START);
    const mill = aMill(memory({ clock }));
    const ran: string[] = [];
    const type = mill.job<number>('chain', async ({ data }) => {
      ran.push(`${String(data)} ${iso(clock)}`);
      if (data < 3) await mill.enqueue('chain', data + 1, { delay: '10m' });
    });
    await mill.start();
    await type.enqueue(1);
    await clock.advance('1h');
    expect(ran).toEqual([
      '1 2025-01-01T00:00:00.000Z',
      '2 2025-01-01T00:10:00.000Z',
      '3 2025-01-01T00:20:00.000Z',
    ]);
  });

  it('does not move the clock while a handler waits in real time', async () => {
    const clock = virtualClock(START);
    const mill = aMill(memory({ clock }));
    const ends: string[] = [];
    const type = mill.job('io', async () => {
      await new Promise((resolve) => setTimeout(resolve, 5));
      ends.push(iso(clock));
    });
    await mill.start();
    await type.enqueue({}, { delay: '1m' });
    await type.enqueue({}, { delay: '2m' });
    await clock.advance('1h');
    expect(ends).toEqual(['2025-01-01T00:01:00.000Z', '2025-01-01T00:02:00.000Z']);
  });

  it('waits for each of several slow handlers before time moves on', async () => {
    const clock = virtualClock(START);
    const mill = aMill(memory({ clock }));
    const ran: string[] = [];
    const type = mill.job('io', { concurrency: 1 }, async () => {
      ran.push(iso(clock));
      await new Promise((resolve) => setTimeout(resolve, 12));
    });
    await mill.start();
    await type.enqueueMany(Array.from({ length: 5 }, () => ({ data: {}, delay: '1m' })));
    await clock.advance('1h');
    expect(ran).toEqual(Array(5).fill('2025-01-01T00:01:00.000Z'));
    expect(await mill.jobs.count({ status: 'completed' })).toBe(5);
  });

  it('stamps jobs with the time of the virtual clock', async () => {
    const clock = virtualClock(START);
    const mill = aMill(memory({ clock }));
    mill.job('stamped', () => 1);
    await clock.advance('1d');
    const job = await mill.enqueue('stamped', {}, { delay: '1m' });
    expect(job).toMatchObject({
      createdAt: new Date('2025-01-02T00:00:00Z'),
      nextRunAt: new Date('2025-01-02T00:01:00Z'),
    });
    await mill.start();
    await clock.advance('1m');
    expect(await mill.jobs.get(job.id)).toMatchObject({
      status: 'completed',
      finishedAt: new Date('2025-01-02T00:01:00Z'),
      updatedAt: new Date('2025-01-02T00:01:00Z'),
    });
  });

  it('stays healthy however far the clock moves at once', async () => {
    const clock = virtualClock(START);
    const mill = aMill(memory({ clock }), { leaseDuration: '2h' });
    const type = mill.job('long', { concurrency: 1 }, () => 'done');
    const lost: unknown[] = [];
    mill.on('lease:lost', (event) => lost.push(event));
    await mill.start();
    await clock.advance('30d');
    expect(mill.isHealthy()).toBe(true);
    const { id } = await type.enqueue({});
    await clock.advance('1s');
    expect(await mill.jobs.get(id)).toMatchObject({ status: 'completed', failCount: 0 });
    expect(lost).toEqual([]);
  });
});
