import { describe, expect, it } from 'vitest';
import { memory } from '../../../src/memory/index.js';
import { virtualClock } from '../../../src/testing/index.js';
import { aMill, gate } from '../../support/mills.js';

describe('fairness between job names', () => {
  it('a flood of one name does not delay another name', async () => {
    const mill = aMill(memory(), { concurrency: 4 });
    const order: string[] = [];
    const flood = mill.job('flood', { concurrency: 4 }, () => void order.push('flood'));
    const other = mill.job('other', { concurrency: 4 }, () => void order.push('other'));
    await flood.enqueueMany(Array.from({ length: 2_000 }, () => ({ data: {} })));
    await other.enqueueMany(Array.from({ length: 20 }, () => ({ data: {} })));
    const all = gate();
    mill.on('job:complete', () => {
      if (order.length === 2_020) all.open();
    });
    await mill.start();
    await all.promise;
    expect(order.lastIndexOf('other')).toBeLessThan(1_000);
  });

  it('a flood that is already running lets another name in', async () => {
    const mill = aMill(memory(), { concurrency: 2 });
    let flooded = 0;
    const half = gate();
    const flood = mill.job('flood', { concurrency: 2 }, () => {
      flooded += 1;
      if (flooded === 500) half.open();
    });
    const seen = gate<number>();
    const other = mill.job('other', () => seen.open(flooded));
    await flood.enqueueMany(Array.from({ length: 4_000 }, () => ({ data: {} })));
    await mill.start();
    await half.promise;
    const before = flooded;
    await other.enqueue({});
    expect((await seen.promise) - before).toBeLessThan(1_500);
  });

  it('long jobs of one name leave the other slots of the instance free', async () => {
    const clock = virtualClock('2025-01-01');
    const mill = aMill(memory({ clock }), { concurrency: 10 });
    const end = gate();
    const slow = mill.job('slow', { concurrency: 9 }, () => end.promise);
    const quick = mill.job('quick', () => 'done');
    await slow.enqueueMany(Array.from({ length: 100 }, () => ({ data: {} })));
    await mill.start();
    await clock.advance('1s');
    expect(mill.health().running).toBe(9);
    const { id } = await quick.enqueue({});
    await clock.advance('1s');
    expect(await mill.jobs.get(id)).toMatchObject({ status: 'completed' });
    end.open();
  });

  it('forty names with one job each all get their turn on one slot', async () => {
    const clock = virtualClock('2025-01-01');
    const mill = aMill(memory({ clock }), { concurrency: 1 });
    const seen = new Set<string>();
    const names = Array.from({ length: 40 }, (_, n) => `name-${String(n)}`);
    for (const name of names) mill.job(name, () => void seen.add(name));
    await mill.enqueueMany(names.map((name) => ({ name })));
    await mill.start();
    await clock.advance('1m');
    expect(seen).toEqual(new Set(names));
  });

  it('a paused name waits while the others run, and runs after it is resumed', async () => {
    const clock = virtualClock('2025-01-01');
    const mill = aMill(memory({ clock }));
    mill.job('paused', () => 1);
    mill.job('open', () => 1);
    await mill.jobs.pause('paused');
    await mill.start();
    const [held, free] = await mill.enqueueMany([{ name: 'paused' }, { name: 'open' }]);
    await clock.advance('1h');
    expect(await mill.jobs.get(held.id)).toMatchObject({ status: 'pending' });
    expect(await mill.jobs.get(free.id)).toMatchObject({ status: 'completed' });
    await mill.jobs.resume('paused');
    await clock.advance('1s');
    expect(await mill.jobs.get(held.id)).toMatchObject({ status: 'completed' });
  });
});
