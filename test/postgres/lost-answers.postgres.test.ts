import { describe, expect, it } from 'vitest';
import { systemClock } from '../../src/core/clock.js';
import { StoreError } from '../../src/core/errors.js';
import type { Sql } from '../../src/sql/connection/connection.js';
import type { Queryable } from '../../src/sql/connection/driver.js';
import { insert, insertFree } from '../../src/sql/jobs/enqueue/insert.js';
import { namesIn } from '../../src/sql/schema/names.js';
import { behindPostgresProxy } from '../support/flaky-proxy.js';
import { aMill, until } from '../support/mills.js';
import { freshPostgres, rawPool } from '../support/stores.js';

const pool = rawPool();

/** A store that answers the first statement with the first job only, and has no connection for the next one. */
function thenExhausted(): Sql {
  let asked = 0;
  const prepared: Queryable = {
    query: () => {
      asked += 1;
      if (asked === 1) return Promise.resolve({ rows: [{ json: '"first"' }] });
      return Promise.reject(new StoreError('Nothing was sent to the database.', { transient: true }));
    },
  };
  return { clock: systemClock, names: namesIn('x'), driver: { prepared } } as unknown as Sql;
}

describe('responses of PostgreSQL lost after the write succeeded', () => {
  it('runs a job once if the response to its enqueue was lost', async () => {
    const { proxy, url } = await behindPostgresProxy();
    const mill = aMill(freshPostgres({ url }), { leaseDuration: 3_000 });
    const runs: number[] = [];
    mill.job('x', (job) => void runs.push(job.attempt));
    await mill.start();
    await mill.jobs.result((await mill.enqueue('x', {})).id);
    proxy.picky = (request) => request.includes('mine');
    await expect(mill.enqueue('x', {}, { id: 'mine' })).rejects.toMatchObject({ outcomeUnknown: true });
    proxy.picky = undefined;
    await mill.jobs.result('mine');
    expect(runs).toEqual([1, 1]);
    expect(await mill.jobs.get('mine')).toMatchObject({ status: 'completed', failCount: 0 });
  });

  it('a job whose commit response was lost runs once, as the job shows that it was committed', async () => {
    const schema = `test_commit_${Math.random().toString(36).slice(2)}`;
    const { proxy, url } = await behindPostgresProxy();
    const store = freshPostgres({ url, schema });
    const mill = aMill(store);
    const { jobs } = namesIn(schema);
    const effects = jobs.replace('jobs', 'effects');
    let runs = 0;
    mill.job('exact', async (job) => {
      runs += 1;
      await store.transaction(async (transaction) => {
        await transaction.query(`insert into ${effects} (job) values ($1)`, [job.id]);
        await job.complete({ transaction });
        proxy.picky = (request) => request.includes('commit');
      });
    });
    await mill.start();
    await pool.query(`create table ${effects} (job text)`);
    const lost = until('the answer to the commit is lost', () => proxy.lost > 0);
    const job = await mill.enqueue('exact', {});
    await lost;
    proxy.picky = undefined;
    await mill.jobs.result(job.id);
    await mill.stop();
    expect(runs).toBe(1);
    expect(await mill.jobs.get(job.id)).toMatchObject({ status: 'completed', failCount: 0 });
    expect((await pool.query(`select job from ${effects}`)).rows).toEqual([{ job: job.id }]);
  });

  it.each([
    ['jobs that are asked for together', insert],
    ['single ones that share a write', insertFree],
  ])(
    'an enqueue without a connection for its rest says that a part may be stored: %s',
    async (_what, ask) => {
      const jobs = ['first', 'second'].map((id) => ({
        id,
        ownId: true,
        name: 'x',
        data: null,
        status: 'pending' as const,
        priority: 0,
        nextRunAt: new Date(0),
        createdAt: new Date(0),
      }));
      await expect(ask(thenExhausted(), jobs)).rejects.toMatchObject({
        code: 'STORE',
        transient: true,
        outcomeUnknown: true,
        message: expect.stringContaining('enqueue: part of this call may have been stored') as string,
      });
    },
  );
});
