import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { namesIn } from '../../src/sql/schema/names.js';
import { aMill, until } from '../support/mills.js';
import { freshPostgres, rawPool } from '../support/stores.js';

const pool = rawPool();
const once = { type: 'fixed', interval: 0, maxAttempts: 1 } as const;

/** Texts that mean something to SQL, JSON, LIKE or parameters. */
const tricky = fc.constantFrom(
  `'; drop table jobs; --`,
  `"`,
  `\\`,
  `$1`,
  `$$`,
  `%`,
  `_`,
  `{}`,
  `[1]`,
  `null`,
  `{"what":"jobs"}`,
  `E'\\x00'`,
  `/*`,
  `\u2028`,
  `👩‍👩‍👧`,
);
const text = fc
  .array(fc.oneof(tricky, fc.string({ unit: 'binary', maxLength: 12 })), { minLength: 1, maxLength: 4 })
  .map((parts) => parts.join(''))
  .filter(
    (joined) => joined.trim() !== '' && !/\0|\p{Surrogate}/u.test(joined) && !joined.startsWith('schedule:'),
  );

describe('hostile names, keys, ids and payloads on PostgreSQL', () => {
  it('hostile text is always a value, never SQL', async () => {
    const schema = `test_fuzz_${Math.random().toString(36).slice(2)}`;
    const mill = aMill(freshPostgres({ schema }), { pollInterval: { min: 10, max: 50 } });
    await mill.start();
    await fc.assert(
      fc.asyncProperty(text, text, text, text, async (name, key, id, payload) => {
        const data = { [payload]: payload };
        await mill.jobs.pause(name);
        const job = await mill.enqueue(name, data, { uniqueKey: key, id });
        if (job.outcome === 'existing') return;
        expect(await mill.enqueue(name, 0, { uniqueKey: key })).toMatchObject({
          id,
          outcome: 'existing',
          data,
        });
        expect((await mill.jobs.find({ name, uniqueKey: key, ids: [id] })).items).toMatchObject([
          { id, data },
        ]);
        expect((await mill.jobs.find({ error: payload })).items).toEqual([]);
        expect(await mill.jobs.cancel(id)).toMatchObject({ outcome: 'cancelled' });
        expect(await mill.jobs.retry(id)).toMatchObject({ outcome: 'retried' });
        expect(await mill.withLock(key, () => name)).toBe(name);
        await mill.schedule('@daily', name, data, { uniqueKey: key });
        expect(await mill.schedules.get(name, key)).toMatchObject({ data });
        await mill.schedules.remove(name, key);
        expect(await mill.jobs.removeMany({ ids: [id] })).toEqual({ count: 1 });
        await mill.jobs.resume(name);
      }),
      { numRuns: 40 },
    );
    const { rows } = await pool.query(`select count(*)::integer as left from ${namesIn(schema).jobs}`);
    expect(rows).toEqual([{ left: 0 }]);
  });

  it('rejects text that PostgreSQL cannot hold, with the reason', async () => {
    const mill = aMill(freshPostgres());
    for (const bad of ['a\0b', '\ud800']) {
      await expect(mill.enqueue('x', { [`k${bad}`]: 1 })).rejects.toThrow(
        /which (?:PostgreSQL cannot|no database can) store/u,
      );
      await expect(mill.enqueue('x', { deep: [bad] })).rejects.toThrow('data.deep[0]');
      await expect(mill.enqueue(bad, 1)).rejects.toThrow('name has');
      await expect(mill.enqueue('x', 1, { uniqueKey: bad })).rejects.toThrow('uniqueKey has');
      await expect(mill.enqueue('x', 1, { id: bad })).rejects.toThrow('id has');
      await expect(mill.schedule('@daily', 'x', 1, { uniqueKey: bad })).rejects.toThrow('uniqueKey has');
      await expect(mill.withLock(bad, () => 1)).rejects.toThrow('key has');
      expect(await mill.jobs.get(bad)).toBeUndefined();
      expect((await mill.jobs.find({ name: bad })).items).toEqual([]);
    }
    expect(await mill.jobs.count()).toBe(0);
  });

  it('text that PostgreSQL cannot hold in errors, logs and results leaves a readable record', async () => {
    const mill = aMill(freshPostgres());
    mill.job('throws', { retryPolicy: once }, () => {
      throw new Error('half \ud800 and zero \0');
    });
    mill.job('logs', (job) => job.log('zero \0'));
    mill.job('returns', { retryPolicy: once }, () => 'zero \0');
    mill.job('fine', () => 'ran');
    await mill.start();
    const jobs = await mill.enqueueMany([
      { name: 'throws' },
      { name: 'logs' },
      { name: 'returns' },
      { name: 'fine' },
    ]);
    expect(await mill.jobs.result(jobs[3].id)).toBe('ran');
    await until(
      'all have ended',
      async () => (await mill.jobs.count({ status: ['completed', 'failed'] })) === 4,
    );
    expect(await mill.jobs.get(jobs[0].id)).toMatchObject({
      failReason: 'half \uFFFD and zero \uFFFD',
    });
    expect((await mill.jobs.get(jobs[1].id))?.logs).toMatchObject([{ message: 'zero \uFFFD' }]);
    expect((await mill.jobs.get(jobs[2].id))?.failReason).toContain('PostgreSQL cannot store');
  });

  it('a handler name that PostgreSQL cannot hold does not stop other claims', async () => {
    const mill = aMill(freshPostgres());
    mill.job('a\0b', () => 'never');
    mill.job('fine', () => 'ran');
    await mill.start();
    expect(await mill.jobs.result((await mill.enqueue('fine', {})).id)).toBe('ran');
  });
});

describe('retention on PostgreSQL', () => {
  it('a sweep deletes expired jobs and old locks in batches, and nothing else', async () => {
    const schema = `test_sweep_${Math.random().toString(36).slice(2)}`;
    const store = freshPostgres({ schema });
    const mill = aMill(store);
    await mill.jobs.count();
    const { jobs, locks } = namesIn(schema);
    await pool.query(
      `insert into ${jobs} (name, status, expires_at)
       select 'x', 'completed', now() + (n - 2500.5) * interval '1 second' from generate_series(1, 5000) n`,
    );
    await pool.query(
      `insert into ${locks} (key, lease_until, fence) values ('old', now() - interval '8 days', 1), ('new', now(), 1)`,
    );
    expect(await store.jobs.sweep?.(new Date(store.clock.now()))).toBeGreaterThanOrEqual(2_499);
    expect(await mill.jobs.count()).toBeLessThanOrEqual(2_501);
    const { rows } = await pool.query(`select key from ${locks}`);
    expect(rows).toEqual([{ key: 'new' }]);
  });
});
