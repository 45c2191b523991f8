import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Work } from '../../src/core/records/work.js';
import { Lanes } from '../../src/engine/claim/lanes.js';
import { FIRST_AHEAD, LATELY_MS, MOST_BYTES_AHEAD } from '../../src/engine/claim/prefetch.js';
import { aClaimed } from './support.js';

const ALONE = { rank: 0, of: 1 };

function lanesOf(slots: number, names: Readonly<Record<string, number>>): Lanes {
  const lanes = new Lanes(slots);
  lanes.define(new Map(Object.entries(names).map(([name, concurrency]) => [name, { concurrency }])));
  return lanes;
}

const jobs = (name: string, count: number): Work[] => Array.from({ length: count }, () => aClaimed({ name }));

const asked = (lanes: Lanes): Record<string, number> | null => {
  const request = lanes.request(ALONE, 0);
  return request && Object.fromEntries([...request.limits].map(([name, { max }]) => [name, max]));
};

const start = (lanes: Lanes): Work[] => {
  const started: Work[] = [];
  for (let jobs = lanes.next(0); jobs !== undefined; jobs = lanes.next(0)) started.push(...jobs);
  return started;
};

describe('claim requests of lanes', () => {
  it('a claim requests the free slots of each name, within those of the instance', () => {
    const lanes = lanesOf(10, { a: 5, b: 20 });
    expect(lanes.request(ALONE, 0)).toMatchObject({ total: expect.any(Number) as number });
    expect(asked(lanes)).toEqual({ a: 5, b: 10 });
  });

  it('a claim requests at most the free slots in total if nothing is prefetched', () => {
    const names = Object.fromEntries(Array.from({ length: 32 }, (_, n) => [`name-${String(n)}`, 5]));
    expect(lanesOf(10, names).request(ALONE, 0)).toMatchObject({ total: 10 });
    const lanes = lanesOf(10, names);
    lanes.accept(jobs('name-1', 4), 0);
    expect(lanes.request(ALONE, 0)).toMatchObject({ total: 6 });
    start(lanes);
    expect(lanes.request(ALONE, 0)).toMatchObject({ total: 6 });
  });

  it('a claim prefetches at most what all slots finish in 250 ms, however many names are short', () => {
    const names = Object.fromEntries(Array.from({ length: 8 }, (_, n) => [`name-${String(n)}`, 10]));
    const lanes = lanesOf(10, names);
    for (const name of Object.keys(names)) {
      lanes.accept(jobs(name, 1), 0);
      start(lanes);
      lanes.done(name, 25);
    }
    expect(lanes.request(ALONE, 0)).toMatchObject({ total: 10 + 100 });
    lanes.accept(jobs('name-1', 60), 0);
    expect(lanes.request(ALONE, 0)).toMatchObject({ total: 50 });
  });

  it('a claim prefetches nothing while buffered work of all names weighs enough', () => {
    const lanes = lanesOf(2, { large: 1, small: 1 });
    for (const name of ['large', 'small']) {
      lanes.accept(jobs(name, 1), 0);
      start(lanes);
      lanes.done(name, 1);
    }
    lanes.accept(jobs('small', 40), 0);
    start(lanes);
    expect(lanes.request(ALONE, 0)?.total).toBeGreaterThan(100);
    lanes.accept([aClaimed({ name: 'small', bytes: MOST_BYTES_AHEAD })], 0);
    expect(lanes.request(ALONE, 0)?.total).toBe(1);
  });

  it('a claim prefetches nothing for a name with ahead: false', () => {
    const lanes = new Lanes(10);
    lanes.define(new Map([['once', { concurrency: 5, ahead: false }]]));
    lanes.accept(jobs('once', 1), 0);
    start(lanes);
    lanes.done('once', 1);
    expect(lanes.request(ALONE, 0)).toMatchObject({ total: 5 });
  });

  it('a claim leaves out a name whose slots are all taken', () => {
    const lanes = lanesOf(10, { a: 1, b: 2 });
    lanes.accept(jobs('a', 1), 0);
    start(lanes);
    expect(asked(lanes)).toEqual({ b: 2 });
  });

  it('there is no claim if long work takes every slot, or if there are no names', () => {
    const lanes = lanesOf(2, { a: 5 });
    lanes.accept(jobs('a', 2), 0);
    start(lanes);
    expect(asked(lanes)).toBeNull();
    expect(asked(lanesOf(5, {}))).toBeNull();
  });

  it('a claim grows by the prefetch of short work, and shrinks by what is buffered', () => {
    const lanes = lanesOf(10, { a: 2 });
    lanes.accept(jobs('a', 2), 0);
    start(lanes);
    lanes.done('a', 50);
    lanes.done('a', 50);
    expect(asked(lanes)).toEqual({ a: 2 + 10 });
    lanes.accept(jobs('a', 5), 0);
    expect(asked(lanes)).toEqual({ a: 2 + 10 - 5 });
  });

  it('a claim prefetches little at first, and more after work of the name was claimed', () => {
    const lanes = lanesOf(10, { a: 2, b: 2 });
    lanes.accept(jobs('a', 2), 0);
    start(lanes);
    lanes.done('a', 0);
    lanes.done('a', 0);
    expect(asked(lanes)).toEqual({ a: 2 + FIRST_AHEAD, b: 2 });
    lanes.accept(jobs('a', 18), 0);
    start(lanes);
    expect(asked(lanes)?.['a']).toBe(4 * 20);
  });

  it('a claim prefetches little again after a second in which nothing of the name was claimed', () => {
    const lanes = lanesOf(10, { a: 2 });
    lanes.accept(jobs('a', 100), 0);
    while (start(lanes).length > 0) for (let n = lanes.running; n > 0; n -= 1) lanes.done('a', 0);
    expect(lanes.request(ALONE, LATELY_MS - 1)?.limits.get('a')?.max).toBe(2 + 400);
    expect(lanes.request(ALONE, LATELY_MS)?.limits.get('a')?.max).toBe(2 + FIRST_AHEAD);
  });

  it('a claim waits until about half of the buffer is used', () => {
    const lanes = lanesOf(2, { a: 2 });
    lanes.accept(jobs('a', 2), 0);
    start(lanes);
    lanes.done('a', 10);
    lanes.done('a', 10);
    lanes.accept(jobs('a', 52), 0);
    start(lanes);
    // 50 are waiting, which is the whole prefetch.
    expect(lanes.buffered).toBe(50);
    expect(asked(lanes)).toBeNull();
    const claimed = Array.from({ length: 25 }, () => {
      const worth = lanes.done('a', 10);
      lanes.next(0);
      return worth;
    });
    expect(claimed.slice(0, 20)).not.toContain(true);
    expect(asked(lanes)).not.toBeNull();
  });

  it('a claim starts with another name each time', () => {
    const lanes = lanesOf(10, { a: 5, b: 5, c: 5 });
    const first = Array.from({ length: 6 }, () => Object.keys(asked(lanes)!)[0]);
    expect(new Set(first)).toEqual(new Set(['a', 'b', 'c']));
  });

  it('a claim contains at most 32 names, and all names take turns', () => {
    const names = Object.fromEntries(Array.from({ length: 100 }, (_, n) => [`name-${String(n)}`, 1]));
    const lanes = lanesOf(1_000, names);
    const seen = new Set<string>();
    for (let n = 0; n < 100; n += 1) {
      const request = Object.keys(asked(lanes)!);
      expect(request.length).toBeLessThanOrEqual(32);
      for (const name of request) seen.add(name);
    }
    expect(seen.size).toBe(100);
  });

  it('names that are due take turns if there are more than one claim can ask for', () => {
    const names = Array.from({ length: 1_000 }, (_, n) => `name-${String(n)}`);
    const lanes = lanesOf(10, Object.fromEntries(names.map((name) => [name, 5])));
    const due = new Set(names.slice(500, 600));
    const seen = new Set<string>();
    for (let n = 0; n < 4; n += 1) {
      const { limits } = lanes.request(ALONE, 0, due)!;
      expect([...limits.keys()].every((name) => due.has(name))).toBe(true);
      for (const name of limits.keys()) seen.add(name);
    }
    expect(seen.size).toBe(100);
  });

  it("a claim contains the instance's place among the others for each name", () => {
    const request = lanesOf(10, { work: 5, own: 5 }).request({ rank: 1, of: 3 }, 0)!;
    for (const name of ['work', 'own']) expect(request.limits.get(name)).toMatchObject({ rank: 1, of: 3 });
  });
});

describe('prefetched work', () => {
  it('prefetched work goes back after a second without a slot, and prefetch pauses for its name', () => {
    const lanes = lanesOf(10, { a: 2 });
    lanes.accept(jobs('a', 1), 0);
    start(lanes);
    lanes.done('a', 1);
    const taken = jobs('a', 300);
    lanes.accept(taken, 0);
    expect(start(lanes)).toHaveLength(2);
    expect(lanes.aged(999)).toEqual([]);
    expect(lanes.aged(1_000)).toEqual(taken.slice(2));
    expect(lanes.buffered).toBe(0);
    lanes.done('a', 60_000);
    expect(lanes.request(ALONE, 0)).toMatchObject({ total: 1 });
    for (let n = 0; n < 100; n += 1) {
      lanes.accept(jobs('a', 1), 0);
      start(lanes);
      lanes.done('a', 1);
    }
    expect(lanes.request(ALONE, 0)!.total).toBeGreaterThan(1);
  });

  it('prefetched work goes back after 250 ms once its name turns out to be long', () => {
    const lanes = lanesOf(10, { a: 2 });
    lanes.accept(jobs('a', 1), 0);
    start(lanes);
    lanes.done('a', 1);
    lanes.accept(jobs('a', 300), 0);
    start(lanes);
    lanes.done('a', 10_000);
    start(lanes);
    expect(lanes.aged(249)).toEqual([]);
    expect(lanes.aged(250)).toHaveLength(297);
  });
});

describe('starting work from lanes', () => {
  it('starts work in order within a name and by turns between names', () => {
    const lanes = lanesOf(6, { a: 5, b: 5 });
    const [a, b] = [jobs('a', 5), jobs('b', 5)];
    lanes.accept([...a, ...b], 0);
    const started = start(lanes);
    expect(started).toHaveLength(6);
    expect(started.filter((job) => job.name === 'a')).toEqual(a.slice(0, 3));
    expect(started.filter((job) => job.name === 'b')).toEqual(b.slice(0, 3));
    expect(lanes).toMatchObject({ running: 6, buffered: 4 });
  });

  it('never exceeds the slots of a name or the instance, and starves no name', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 8 }),
        fc.array(fc.integer({ min: 1, max: 6 }), { minLength: 1, maxLength: 4 }),
        fc.array(fc.nat({ max: 3 }), { maxLength: 60 }),
        (slots, concurrencies, ends) => {
          const names = concurrencies.map((_, index) => `n${String(index)}`);
          const lanes = lanesOf(slots, Object.fromEntries(names.map((name, n) => [name, concurrencies[n]!])));
          for (const name of names) lanes.accept(jobs(name, 100), 0);
          const running = new Map(names.map((name) => [name, 0]));
          const count = (job: Work): void => void running.set(job.name, running.get(job.name)! + 1);
          start(lanes).forEach(count);
          const seen = new Set<string>();
          for (const end of ends) {
            for (const [name, n] of running) if (n > 0) seen.add(name);
            const busy = names.filter((name) => running.get(name)! > 0);
            const name = busy[end % busy.length]!;
            lanes.done(name, 100_000);
            running.set(name, running.get(name)! - 1);
            start(lanes).forEach(count);
            const total = [...running.values()].reduce((a, b) => a + b, 0);
            expect(total).toBe(lanes.running);
            expect(total).toBeLessThanOrEqual(slots);
            names.forEach((one, n) => expect(running.get(one)!).toBeLessThanOrEqual(concurrencies[n]!));
            const possible = concurrencies.reduce((a, b) => a + b, 0);
            expect(total).toBe(Math.min(slots, possible));
          }
          if (ends.length >= 20) expect(seen).toEqual(new Set(names));
        },
      ),
      { numRuns: 60 },
    );
  });

  it('applies a changed concurrency and a new name while running', () => {
    const lanes = lanesOf(10, { a: 1 });
    lanes.accept(jobs('a', 5), 0);
    expect(start(lanes)).toHaveLength(1);
    lanes.define(new Map([['a', { concurrency: 3 }], ['b', { concurrency: 1 }]])); // prettier-ignore
    expect(start(lanes)).toHaveLength(2);
    expect(asked(lanes)).toMatchObject({ b: 1 });
  });

  it('removes work from the buffer while it waits, but not once it has started', () => {
    const lanes = lanesOf(1, { a: 5 });
    const [first, second, third] = jobs('a', 3);
    lanes.accept([first!, second!, third!], 0);
    expect(lanes.next(0)).toEqual([first]);
    expect(lanes.take(first!)).toBe(false);
    expect(lanes.take(second!)).toBe(true);
    expect(lanes.take(second!)).toBe(false);
    expect(lanes.waiting()).toEqual([third]);
    expect(lanes.drain()).toEqual([third]);
    expect(lanes.drain()).toEqual([]);
    expect(lanes).toMatchObject({ running: 1, buffered: 0 });
  });
});

describe('a flood of short work', () => {
  it('gives another name its turn although a flood of short work could fill every slot', () => {
    const lanes = lanesOf(2, { flood: 2, other: 2 });
    lanes.accept(jobs('flood', 2), 0);
    start(lanes);
    lanes.done('flood', 0.1);
    lanes.done('flood', 0.1);
    lanes.accept(jobs('flood', 400), 0);
    start(lanes);
    // All slots are busy with the flood, yet the other name may be claimed.
    expect(lanes.running).toBe(2);
    expect(asked(lanes)).toHaveProperty('other');
    lanes.accept(jobs('other', 1), 0);
    const started: string[] = [];
    for (let n = 0; n < 4; n += 1) {
      lanes.done('flood', 0.1);
      started.push(lanes.next(0)![0]!.name);
    }
    expect(started).toContain('other');
  });
});

describe('lanes of batches', () => {
  const batched = (batch: { size: number; waitMs: number }, concurrency = 2): Lanes => {
    const lanes = new Lanes(10);
    lanes.define(new Map([['a', { concurrency, batch }]]));
    return lanes;
  };
  const jobs = (count: number, bytes = 1) =>
    Array.from({ length: count }, (_, at) => aClaimed({ id: `j${String(at)}`, name: 'a', bytes }));
  const place = { rank: 0, of: 1 };

  it('claims what fills the batches of the free slots', () => {
    const lanes = batched({ size: 100, waitMs: 0 });
    expect(lanes.request(place, 0)).toMatchObject({ total: 200 });
  });

  it('claims less for batches of large work, and at least one', () => {
    const lanes = batched({ size: 100, waitMs: 0 });
    lanes.accept(jobs(1, 1_000_000), 0);
    lanes.next(0);
    expect(lanes.request(place, 0)).toMatchObject({ total: 4 });
    lanes.accept(jobs(1, 100_000_000), 0);
    lanes.next(0);
    lanes.free('a');
    expect(lanes.request(place, 0)).toMatchObject({ total: 1 });
  });

  it('starts a full batch at once, in one slot', () => {
    const lanes = batched({ size: 3, waitMs: 1_000 });
    lanes.accept(jobs(4), 0);
    expect(lanes.next(0)).toHaveLength(3);
    expect(lanes.running).toBe(1);
    expect(lanes.next(999)).toBeUndefined();
    expect(lanes.gatheringMs(400)).toBe(600);
    expect(lanes.next(1_000)).toHaveLength(1);
  });

  it('starts a batch that is full by its bytes', () => {
    const lanes = batched({ size: 10, waitMs: 1_000 });
    lanes.accept(jobs(3, 3_000_000), 0);
    expect(lanes.next(0)).toHaveLength(1);
  });

  it('reserves no slot for work that belongs into a batch', () => {
    expect(batched({ size: 2, waitMs: 0 }).reserve('a')).toBe(false);
  });
});

describe('lanes of batches by key', () => {
  const byKey = (batch: { size: number; waitMs: number }, concurrency = 2): Lanes => {
    const lanes = new Lanes(10);
    lanes.define(new Map([['a', { concurrency, batch: { ...batch, byKey: true } }]]));
    return lanes;
  };
  const jobs = (keys: string): Work[] => Array.from(keys, (limitKey) => aClaimed({ name: 'a', limitKey }));
  const keysOf = (works: readonly Work[] | undefined): string =>
    (works ?? []).map(({ limitKey }) => limitKey).join('');
  const turns = (lanes: Lanes): unknown => lanes.request(ALONE, 0)?.limits.get('a')?.turns;
  const run = (lanes: Lanes, ms: number): void => {
    lanes.accept(jobs('z'), 0);
    lanes.next(Infinity);
    lanes.done('a', ms);
  };

  it('calls one key at a time, and the keys in turn', () => {
    const lanes = byKey({ size: 2, waitMs: 0 }, 10);
    lanes.accept(jobs('xxxyzxy'), 0);
    const calls = Array.from({ length: 5 }, () => keysOf(lanes.next(0)));
    expect(calls).toEqual(['xx', 'yy', 'z', 'xx', '']);
    expect(lanes.running).toBe(4);
  });

  it('counts work without a key as that of the empty key', () => {
    const lanes = byKey({ size: 5, waitMs: 0 });
    lanes.accept([aClaimed({ name: 'a' }), ...jobs('x'), aClaimed({ name: 'a', limitKey: '' })], 0);
    expect(lanes.next(0)).toHaveLength(2);
    expect(keysOf(lanes.next(0))).toBe('x');
  });

  it('waits for each key by itself', () => {
    const lanes = byKey({ size: 2, waitMs: 1_000 }, 10);
    lanes.accept(jobs('x'), 0);
    lanes.accept(jobs('yz'), 400);
    lanes.accept(jobs('y'), 500);
    expect(keysOf(lanes.next(500))).toBe('yy');
    expect(lanes.next(999)).toBeUndefined();
    expect(lanes.gatheringMs(600)).toBe(400);
    expect(keysOf(lanes.next(1_000))).toBe('x');
    expect(lanes.gatheringMs(1_000)).toBe(400);
    expect(keysOf(lanes.next(1_400))).toBe('z');
  });

  it('claims as many keys as it has free slots, and a whole batch of each', () => {
    const lanes = byKey({ size: 100, waitMs: 0 });
    expect(turns(lanes)).toEqual({ each: 100, most: 2 });
    expect(lanes.request(ALONE, 0)).toMatchObject({ total: 200 });
    lanes.accept(jobs('xyz'), 0);
    lanes.next(0);
    lanes.next(0);
    expect(lanes.request(ALONE, 0)).toBeNull();
  });

  it('prefetches for as many calls as are soon made, however few jobs each has', () => {
    const lanes = byKey({ size: 100, waitMs: 0 });
    run(lanes, 50);
    expect(turns(lanes)).toEqual({ each: 100, most: 2 + 10 });
    lanes.accept(jobs('klmnopqrstuv'), 0);
    expect(lanes.request(ALONE, 0)).toBeNull();
    start(lanes);
    expect(lanes.buffered).toBe(10);
    expect(lanes.request(ALONE, 0)).toBeNull();
  });

  it('gathers for as many keys as its slots can call while it waits', () => {
    const lanes = byKey({ size: 100, waitMs: 1_750 });
    expect(turns(lanes)).toEqual({ each: 100, most: 500 });
    run(lanes, 100);
    expect(turns(lanes)).toEqual({ each: 100, most: 40 });
    lanes.accept(jobs('k'.repeat(20) + 'lmn'), 0);
    expect(turns(lanes)).toEqual({ each: 100, most: 36 });
    const slow = byKey({ size: 100, waitMs: 1_750 });
    run(slow, 60_000);
    expect(turns(slow)).toEqual({ each: 100, most: 4 });
  });

  it('keeps what waits when batches begin or end to be by key', () => {
    const lanes = byKey({ size: 3, waitMs: 0 });
    const batch = { size: 3, waitMs: 0 };
    lanes.accept(jobs('xyx'), 0);
    lanes.define(new Map([['a', { concurrency: 2, batch }]]));
    expect(lanes.next(0)).toHaveLength(3);
    lanes.accept(jobs('xy'), 0);
    lanes.define(new Map([['a', { concurrency: 2, batch: { ...batch, byKey: true } }]]));
    expect(keysOf(lanes.next(0))).toBe('x');
  });

  it('never mixes keys in a call, and starts or gives up each piece of work once', () => {
    const step = fc.oneof(
      fc.record({
        do: fc.constant('accept' as const),
        keys: fc.string({ unit: fc.constantFrom('x', 'y', 'z'), maxLength: 8 }),
      }),
      fc.record({ do: fc.constantFrom('start' as const, 'end' as const, 'take' as const, 'age' as const) }),
    );
    const options = {
      size: fc.integer({ min: 1, max: 4 }),
      waitMs: fc.constantFrom(0, 300),
      concurrency: fc.integer({ min: 1, max: 3 }),
    };
    fc.assert(
      fc.property(
        fc.record(options),
        fc.array(step, { maxLength: 40 }),
        ({ size, waitMs, concurrency }, steps) => {
          const lanes = byKey({ size, waitMs }, concurrency);
          const waiting = new Set<Work>();
          const leave = (work: Work): void => expect(waiting.delete(work)).toBe(true);
          let calls = 0;
          for (const [at, one] of steps.entries()) {
            const now = at * 100;
            if (one.do === 'accept') {
              const works = jobs(one.keys);
              for (const work of works) waiting.add(work);
              lanes.accept(works, now);
            } else if (one.do === 'start') {
              const works = lanes.next(now) ?? [];
              works.forEach(leave);
              expect(new Set(works.map(({ limitKey }) => limitKey)).size).toBeLessThanOrEqual(1);
              expect(works.length).toBeLessThanOrEqual(size);
              if (works.length > 0) calls += 1;
            } else if (one.do === 'end' && calls > 0) {
              lanes.done('a', 10);
              calls -= 1;
            } else if (one.do === 'take') {
              const [first] = waiting;
              if (first !== undefined && lanes.take(first)) leave(first);
            } else if (one.do === 'age') lanes.aged(now).forEach(leave);
            expect(calls).toBeLessThanOrEqual(concurrency);
            expect(lanes.buffered).toBe(waiting.size);
          }
          lanes.drain().forEach(leave);
          expect(waiting.size).toBe(0);
        },
      ),
    );
  });
});
