import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { Tidemill } from '../../src/index.js';
import { openStore } from '../../src/mill/opening/open-store.js';
import { postgres } from '../../src/postgres/index.js';
import { inspect } from '../../src/sql/schema/inspect.js';
import { aMill, until } from '../support/mills.js';
import { rawPool } from '../support/stores.js';
import { findingOf, findingsOf } from './findings.js';

const pool = rawPool();
const url = (): string => inject('postgresUrl');
const visitor = async (schema: string): Promise<Tidemill> =>
  aMill(await openStore(url(), { schema, visit: 'inspect' }));

describe('the doctor on PostgreSQL', () => {
  const schema = `test_${randomBytes(6).toString('hex')}`;
  const orders = `${schema}_orders`;
  let deployed: Tidemill;

  beforeAll(async () => {
    await pool.query(`create table ${orders} (id integer primary key, status text)`);
    deployed = new Tidemill({ store: postgres({ url: url(), schema, connections: 4 }), logger: false });
    await deployed.reactiveTask({ task: 'ship', collection: orders, handler: () => undefined });
    await deployed.start();
    await until(
      'the task is planned',
      async () => (await findingOf(deployed, 'reactive tasks')).status === 'ok',
    );
  });
  afterAll(async () => {
    await deployed.stop();
    await pool.query(`drop schema ${schema} cascade; drop table ${orders} cascade`);
  });

  it('the doctor finds nothing wrong in a healthy PostgreSQL deployment', async () => {
    const findings = await (await visitor(schema)).doctor();
    const wrong = findings.filter(
      ({ check, status }) => status === 'fail' || (status === 'warn' && check !== 'connections'),
    );
    expect(wrong).toEqual([]);
    expect(findings.map(({ check }) => check)).toContain('leftover triggers');
  });

  it.each([
    [`drop index ${schema}.jobs_by_age`, 'index jobs_by_age is missing'],
    [`alter table ${schema}.pauses drop column kind cascade`, 'column pauses.kind is missing'],
    [`alter table ${schema}.jobs alter column priority type bigint`, 'column jobs.priority is bigint'],
    [`alter table ${schema}.jobs alter column name drop not null`, 'column jobs.name is text'],
    [
      `drop index ${schema}.jobs_by_age; create index jobs_by_age on ${schema}.jobs (id)`,
      'index jobs_by_age is CREATE INDEX',
    ],
  ])('the doctor names the damage done by "%s", and its fix repairs it', async (damage, said) => {
    await pool.query(damage);
    const mill = await visitor(schema);
    const findings = await findingsOf(mill, 'schema');
    expect(findings.map(({ found }) => found).join('\n')).toContain(said);
    for (const { fix } of findings) await pool.query(`begin; ${fix ?? ''}; commit`);
    expect((await findingOf(mill, 'schema')).status).toBe('ok');
  });

  it('the doctor suggests no DROP and ends no session while no instance is alive', async () => {
    const damage = `drop index ${schema}.jobs_by_age; create index jobs_by_age on ${schema}.jobs (id);
      alter table ${schema}.pauses drop constraint pauses_pkey, add constraint pauses_pkey primary key (name, kind)`;
    const mill = await visitor(schema);
    await deployed.stop();
    await pool.query(damage);
    const before = await findingsOf(mill, 'schema');
    expect(before.map(({ found }) => found).join()).toMatch(/index jobs_by_age is .*constraint pauses/su);
    for (const { fix = '', destroys } of await mill.doctor()) {
      expect(fix).not.toMatch(/drop|terminate/u);
      expect(destroys).toBeUndefined();
    }
    await deployed.start();
    const after = await findingsOf(mill, 'schema');
    expect(after.map(({ destroys }) => destroys)).toEqual([true, true]);
    for (const { fix } of after) await pool.query(`begin; ${fix ?? ''}; commit`);
    expect((await findingOf(mill, 'schema')).status).toBe('ok');
  });

  it('the doctor reports a schema of a later or an earlier version', async () => {
    const mill = await visitor(schema);
    await pool.query(`insert into ${schema}.migrations (version, name) values (999, 'later')`);
    expect(await findingOf(mill, 'schema')).toMatchObject({
      status: 'fail',
      fix: 'npm install tidemill@latest',
    });
    await pool.query(`delete from ${schema}.migrations where version > 1`);
    const earlier = await findingOf(mill, 'schema');
    expect(earlier.found).toContain('is at version 1, and this Tidemill needs');
    expect(earlier.fix).toContain('migrationScript(1)');
    const versions = Array.from(
      { length: Number(/needs (\d+)/u.exec(earlier.found)?.[1]) - 1 },
      (_, i) => i + 2,
    );
    for (const version of versions)
      await pool.query(`insert into ${schema}.migrations (version, name) values ($1, 'again')`, [version]);
  });

  it('the doctor reports a missing schema, and does not create it', async () => {
    const absent = `test_${randomBytes(6).toString('hex')}`;
    expect(await findingOf(await visitor(absent), 'schema')).toMatchObject({ status: 'warn' });
    expect((await pool.query(`select from pg_namespace where nspname = $1`, [absent])).rows).toEqual([]);
  });

  it('the doctor names triggers that no task needs, with the command that drops them', async () => {
    await deployed.stop();
    const mill = await visitor(schema);
    // No instance is alive: the application may merely be down, and would miss its triggers.
    expect((await findingOf(mill, 'leftover triggers')).fix).toMatch(/^start your application/u);
    const other = aMill(await openStore(url(), { schema }));
    await other.start();
    expect(await findingOf(mill, 'leftover triggers')).toMatchObject({
      status: 'warn',
      fix: `tidemill drop-triggers public.${orders}`,
      destroys: true,
    });
    await other.stop();
    await deployed.start();
    expect((await findingOf(mill, 'leftover triggers')).status).toBe('ok');
  });

  it('the doctor names transactions that stay open, with the command that ends them', async () => {
    const holder = await pool.connect();
    try {
      await holder.query(`begin; set local application_name = 'forgetful'; select 1`);
      const { rows } = await holder.query<{ pid: number }>('select pg_backend_pid() as pid');
      const sql = { driver: pool, names: { schema: 'public' } } as never;
      const findings = await inspect({ sql, shared: true, leftovers: () => Promise.resolve([]), longMs: 0 });
      const named = findings.filter(
        ({ check, found }) => check === 'open transactions' && found.includes('forgetful'),
      );
      expect(named).toMatchObject([
        {
          status: 'warn',
          fix: expect.stringContaining(`pg_terminate_backend(${String(rows[0]!.pid)})`) as string,
          destroys: true,
        },
      ]);
    } finally {
      await holder.query('rollback');
      holder.release();
    }
  });

  it('the doctor skips checks it has no permission for, and says why', async () => {
    const role = `visitor_${randomBytes(4).toString('hex')}`;
    const at = new URL(url());
    at.username = role;
    await pool.query(`create role ${role} login`);
    try {
      const stranger = aMill(await openStore(at.href, { schema, visit: 'inspect' }));
      const findings = await stranger.doctor();
      expect(findings[0]).toMatchObject({ check: 'connection', status: 'fail' });
      expect(findings[0]?.found).toContain('permission denied');
      await pool.query(
        `grant usage on schema ${schema} to ${role}; grant select on all tables in schema ${schema} to ${role}`,
      );
      expect(await findingOf(stranger, 'schema')).toMatchObject({
        status: 'skipped',
        found: expect.stringContaining('permission denied') as string,
      });
      await stranger.stop();
    } finally {
      await pool.query(`drop owned by ${role}; drop role ${role}`);
    }
  });
});
