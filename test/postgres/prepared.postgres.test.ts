import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { expect, inject, it, onTestFinished } from 'vitest';
import { Connections } from '../../src/postgres/connections.js';
import { Prepared } from '../../src/postgres/prepared.js';
import { until } from '../support/mills.js';

/** One connection, so that a test sees what it has kept. */
function alone(): pg.Pool {
  const pool = new pg.Pool({ connectionString: inject('postgresUrl'), max: 1 });
  onTestFinished(() => pool.end());
  return pool;
}

/** A statement may take a minute here. */
const preparing = (pool: pg.Pool, planAgeMs?: number): Prepared =>
  new Prepared(new Connections(pool, { size: 1, remedy: '' }), () => 60_000, planAgeMs);

const KEPT = 'select name, statement from pg_prepared_statements';

it('prepares each statement once per connection', async () => {
  const pool = alone();
  const prepared = preparing(pool);
  const twice = 'select ($1::integer * 2)::text as json';
  for (const value of [1, 2, 3]) {
    const { rows } = await prepared.query(twice, [value]);
    expect(rows).toEqual([{ json: String(value * 2) }]);
  }
  const { rows } = await pool.query<{ name: string; statement: string }>(KEPT);
  expect(rows.map(({ statement }) => statement)).toEqual([twice]);
  expect(rows[0]?.name).toMatch(/^tidemill_[\da-f]{24}$/u);
});

it("continues without prepared statements if a pooler's connections do not know them", async () => {
  const pool = alone();
  const prepared = preparing(pool);
  const ask = () => prepared.query('select $1::text as json', ['hello']);
  await ask();
  await pool.query('deallocate all');
  expect((await ask()).rows).toEqual([{ json: 'hello' }]);
  expect((await pool.query(KEPT)).rows).toEqual([]);
  expect((await ask()).rows).toEqual([{ json: 'hello' }]);
});

it('passes other errors on and keeps the connection usable', async () => {
  const prepared = preparing(alone());
  await expect(prepared.query('select 1 / $1::integer', [0])).rejects.toMatchObject({ code: '22012' });
  expect((await prepared.query('select $1::text as json', ['on'])).rows).toEqual([{ json: 'on' }]);
});

it('replans prepared statements after a while, as tables grow', async () => {
  const pool = alone();
  // Otherwise the server keeps a plan only after some calls, if that seems cheaper.
  await pool.query('set plan_cache_mode = force_generic_plan');
  const planOf = async (): Promise<string> => {
    const { rows } = await pool.query<{ name: string }>(KEPT);
    const plan = await pool.query<Record<string, string>>(`explain execute ${rows[0]?.name ?? ''} (1)`);
    return plan.rows.map((row) => row['QUERY PLAN']).join('\n');
  };
  const grow = async (): Promise<string> => {
    await pool.query('deallocate all');
    const table = `t_${randomBytes(6).toString('hex')}`;
    onTestFinished(async () => {
      await pool.query(`drop table ${table}`);
    });
    await pool.query(`create table ${table} (id integer primary key) with (autovacuum_enabled = false)`);
    await pool.query(`insert into ${table} values (1)`);
    await pool.query(`vacuum analyze ${table}`);
    const text = `select id::text as json from ${table} where id = $1::integer`;
    const lasting = preparing(pool);
    await lasting.query(text, [1]);
    await pool.query(`insert into ${table} select generate_series(2, 50000)`);
    await lasting.query(text, [1]);
    return text;
  };
  // Much DDL of other sessions makes the server forget every plan, and then this one is not kept either.
  const text = await until('the server keeps the plan of a small table', async () => {
    const grown = await grow();
    return (await planOf()).includes('Seq Scan') && grown;
  });
  const forgetful = preparing(pool, 0);
  await forgetful.query(text, [1]);
  await forgetful.query(text, [1]);
  expect(await planOf()).toContain('Index');
});
