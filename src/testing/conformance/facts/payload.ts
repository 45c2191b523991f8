import { nasty } from '../payloads.js';
import { chapter, fact, type Chapter } from '../chapters.js';
import { expect } from '../expect.js';
import { once, until } from '../fixtures.js';

export const payloads: Chapter = chapter('payloads', [
  ...Object.entries(nasty).map(([what, payload]) =>
    fact(`returns a payload unchanged after every transition: ${what}`, async ({ aMill, has }) => {
      const mill = aMill();
      const seen: unknown[] = [];
      mill.job('mirror', { retryPolicy: { type: 'fixed', interval: 0 } }, async (job) => {
        seen.push(job.data);
        job.progress(job.data);
        job.log('data', job.data);
        if (job.attempt === 1) throw new Error('$message with ${odd} parts');
        if (job.attempt === 2) throw Object.assign(new Error('again'), { retryAfter: 1 });
        return job.data;
      });
      mill.job('exact', async (job) => {
        await mill.withTransaction((transaction) => job.complete({ transaction, result: job.data }));
      });
      await mill.start();
      const plain = await mill.enqueue('mirror', payload);
      const inside = has('transactions')
        ? await mill.withTransaction((transaction) =>
            mill.enqueue('exact', payload, { transaction, uniqueKey: '$key.x' }),
          )
        : undefined;
      const [many] = await mill.enqueueMany([
        { name: 'waiting', data: payload, delay: '1h', uniqueKey: 'k' },
      ]);
      expect(await mill.jobs.result(plain.id)).toEqual(payload);
      if (inside !== undefined) expect(await mill.jobs.result(inside.id)).toEqual(payload);
      expect(seen).toEqual([payload, payload, payload]);
      const after = await mill.jobs.get(plain.id);
      expect(after).toMatchObject({ failCount: 2, failReason: 'again', status: 'completed' });
      expect(after?.progress).toEqual(payload);
      expect(after?.logs?.at(-1)?.fields).toEqual(payload);
      await mill.jobs.cancel(many.id);
      await mill.jobs.retry(many.id);
      await mill.jobs.reschedule(many.id, '2h');
      expect((await mill.jobs.get(many.id))?.data).toEqual(payload);
      expect(({} as { polluted?: boolean }).polluted).toBeUndefined();
    }),
  ),

  ...Object.entries(nasty).map(([what, payload]) =>
    fact(
      `returns the payload of a schedule and of its failed run unchanged: ${what}`,
      ['schedules'],
      async ({ aMill }) => {
        const mill = aMill();
        mill.job('failing', { retryPolicy: once }, () => {
          throw new Error('$no');
        });
        await mill.start();
        await mill.schedule('0 3 1 1 *', 'failing', payload);
        const again = await mill.schedule('0 3 1 1 *', 'failing', payload);
        expect(again.data).toEqual(payload);
        await mill.schedules.runNow('failing');
        const [copy] = await until('the failed run is kept', async () => {
          const { items } = await mill.jobs.find({ status: 'failed' });
          return items.length > 0 && items;
        });
        expect(copy).toMatchObject({ data: payload, failReason: '$no' });
      },
    ),
  ),

  fact('carries a payload of nearly the size limit through every transition', async ({ aMill, store }) => {
    const mill = aMill();
    const half = Math.floor((store.maxPayloadBytes - 500_000) / 2);
    const bulk = { text: 'x'.repeat(half), more: 'y'.repeat(half) };
    mill.job<typeof bulk>('big', { retryPolicy: { type: 'fixed', interval: 0 } }, (job) => {
      if (job.attempt === 1) throw new Error('once more');
      return job.data.text.length + job.data.more.length;
    });
    await mill.start();
    const job = await mill.enqueue('big', bulk);
    expect(await mill.jobs.result(job.id)).toBe(2 * half);
    expect((await mill.jobs.get(job.id))?.data).toEqual(bulk);
    await expect(mill.enqueue('big', { ...bulk, last: 'z'.repeat(1_000_000) })).rejects.toThrow(
      `more than the limit of ${String(store.maxPayloadBytes)}`,
    );
    expect(await mill.jobs.count()).toBe(1);
  }),

  fact(
    'refuses a payload that cannot be stored unchanged, names its path, and writes nothing',
    async ({ aMill }) => {
      const mill = aMill();
      class Point {
        readonly x = 1;
      }
      const circular: { self?: unknown } = {};
      circular.self = circular;
      const wrong: [unknown, string][] = [
        [{ a: [1, undefined] }, 'data.a[1]'],
        [{ a: { b: Number.NaN } }, 'data.a.b'],
        [{ a: Infinity }, 'data.a'],
        [{ a: 5n }, 'data.a'],
        [{ f: () => 1 }, 'data.f'],
        [{ s: Symbol('x') }, 'data.s'],
        [{ m: new Map() }, 'data.m'],
        [{ s: new Set() }, 'data.s'],
        [{ p: new Point() }, 'data.p'],
        [{ d: new Date('never') }, 'data.d'],
        [circular, 'data.self'],
        [{ a: ['\ud800'] }, 'data.a[0] has half of a surrogate pair'],
        [{ a: { '\udc00k': 1 } }, 'data.a has half of a surrogate pair'],
      ];
      for (const [payload, path] of wrong) {
        await expect(mill.enqueue('x', payload)).rejects.toThrow(path);
        await expect(
          mill.enqueueMany([
            { name: 'x', data: 1 },
            { name: 'x', data: payload },
          ]),
        ).rejects.toThrow(`enqueueMany[1]: ${path}`);
        await expect(mill.schedule('@daily', 'x', payload)).rejects.toThrow(path);
      }
      expect(await mill.jobs.count()).toBe(0);
      mill.job('returns', { retryPolicy: once }, () => ({
        m: new Map(),
      }));
      await mill.start();
      const job = await mill.enqueue('returns', { dropped: undefined, kept: 1 });
      expect(job.data).toEqual({ kept: 1 });
      await expect(mill.jobs.result(job.id)).rejects.toThrow('result.m');
    },
  ),

  fact('refuses lone surrogates in names, keys, ids, progress and results', async ({ aMill }) => {
    const mill = aMill();
    const half = 'a\ud800';
    await expect(mill.enqueue(half, 1)).rejects.toThrow('name has half of a surrogate pair');
    await expect(mill.enqueue('x', 1, { id: half })).rejects.toThrow('id has half');
    await expect(mill.enqueue('x', 1, { uniqueKey: half })).rejects.toThrow('uniqueKey has half');
    await expect(mill.schedule('@daily', 'x', 1, { uniqueKey: half })).rejects.toThrow('uniqueKey has half');
    await expect(mill.withLock(half, () => 1)).rejects.toThrow('key has half');
    await expect(mill.jobs.pause(half)).rejects.toThrow('name has half');
    expect(() => mill.job(half, () => 1)).toThrow('name has half');
    mill.job('returns', { retryPolicy: once }, () => [half]);
    mill.job('reports', { retryPolicy: once }, (job) => job.progress({ [half]: 1 }));
    await mill.start();
    const result = async (name: string): Promise<unknown> =>
      mill.jobs.result((await mill.enqueue(name, {})).id);
    await expect(result('returns')).rejects.toThrow('result[0] has half of a surrogate pair');
    await expect(result('reports')).rejects.toThrow('progress has half of a surrogate pair');
    expect(await mill.jobs.count()).toBe(2);
  }),
]);
