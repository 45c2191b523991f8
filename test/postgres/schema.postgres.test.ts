import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { describe, expect, inject, it } from 'vitest';
import { postgres, type PostgresStore } from '../../src/postgres/index.js';
import { migrations } from '../../src/sql/schema/migrations/index.js';
import { namesIn } from '../../src/sql/schema/names.js';
import { aMill } from '../support/mills.js';
import { aJob, ahead, opened } from '../support/port.js';
import { freshPostgres, rawPool } from '../support/stores.js';

const pool = rawPool();
const aSchema = (): string => `test_${randomBytes(6).toString('hex')}`;
const inSchema = (schema: string, migrate = true): PostgresStore =>
  postgres({ url: inject('postgresUrl'), connections: 2, schema, migrate });

describe('the PostgreSQL schema', () => {
  it('twenty instances that start at once create the schema once', async () => {
    const schema = aSchema();
    await Promise.all(Array.from({ length: 20 }, () => opened(inSchema(schema))));
    const { rows } = await pool.query<{ count: string }>(
      `select count(*) as count from ${namesIn(schema).migrations}`,
    );
    expect(rows).toEqual([{ count: String(migrations.length) }]);
  });

  it('older code refuses a schema of a newer version', async () => {
    const schema = aSchema();
    await opened(inSchema(schema));
    await pool.query(`insert into ${namesIn(schema).migrations} (version, name) values (99, 'later')`);
    await expect(opened(inSchema(schema))).rejects.toThrow(
      /at version 99, which a newer version of Tidemill created/u,
    );
    await expect(opened(inSchema(schema, false))).rejects.toThrow('Update tidemill here');
  });

  it('migrate: false creates nothing, and the migration script creates the schema by hand', async () => {
    const schema = aSchema();
    await expect(opened(inSchema(schema, false))).rejects.toThrow('store.migrationScript(0)');
    await pool.query(inSchema(schema).migrationScript());
    const store = await opened(inSchema(schema, false));
    await store.jobs.insert([aJob()]);
    expect(await store.jobs.count({})).toBe(1);
    expect(await store.schemaFaults()).toEqual([]);
  });

  it('the statements of docs/postgres.md remove the schema step by step, and it can be created again', async () => {
    const schema = aSchema();
    const guide = await readFile(new URL('../../docs/postgres.md', import.meta.url), 'utf8');
    const steps = [...guide.matchAll(/```sql\n(?<sql>-- from \d[^`]+)```/gu)].map(({ groups }) =>
      (groups?.['sql'] ?? '').replaceAll('tidemill.', `${schema}.`).replaceAll("'tidemill'", `'${schema}'`),
    );
    expect(steps).toHaveLength(migrations.length);
    await pool.query(`create table public.${schema} (id integer primary key)`);
    const mill = aMill(inSchema(schema));
    await mill.reactiveTask({ task: 'watch', collection: `public.${schema}`, handler: () => undefined });
    await mill.start();
    await mill.stop();
    const left = async (): Promise<readonly object[]> => {
      const text = `select relname from pg_class where relnamespace = $1::regnamespace`;
      return (await pool.query<{ relname: string }>(text, [schema])).rows;
    };
    for (const step of steps) await pool.query(step);
    expect(await left()).toEqual([]);
    // No trigger is left behind that would fail.
    await pool.query(`insert into public.${schema} values (1)`);
    await opened(inSchema(schema));
    expect(await left()).not.toEqual([]);
  });

  it.each(['in the migration', 'beforehand, by the statements of docs/postgres.md'])(
    'a schema of version 6 is upgraded with its indexes built %s, and lists its jobs beside new ones',
    async (how) => {
      const schema = aSchema();
      const names = namesIn(schema);
      await pool.query(`create schema ${schema}; create table ${names.migrations} (version integer primary key,
        name text not null, applied_at timestamptz(3) not null default now())`);
      for (const { version, name, up } of migrations.slice(0, 6)) {
        for (const statement of up(names)) await pool.query(statement);
        await pool.query(`insert into ${names.migrations} (version, name) values ($1, $2)`, [version, name]);
      }
      await pool.query(
        `insert into ${names.jobs} (id, name, status) values ('one', 'x', 'completed'), ('two', 'x', 'pending')`,
      );
      if (how.startsWith('beforehand')) {
        const guide = await readFile(new URL('../../docs/postgres.md', import.meta.url), 'utf8');
        const block = /```sql\n(?<sql>alter table tidemill\.jobs add column if not exists[^`]+)```/u.exec(
          guide,
        );
        const statements = (block?.groups?.['sql'] ?? '').replaceAll('tidemill.', `${schema}.`).split(';');
        expect(statements).toHaveLength(7);
        for (const statement of statements) await pool.query(statement);
      }
      const store = await opened(inSchema(schema));
      expect(await store.schemaFaults()).toEqual([]);
      const inserted = await store.jobs.insert([aJob({ createdAt: ahead(60_000) })]);
      const found = await store.jobs.find({}, { field: 'createdAt', direction: -1, limit: 10 });
      expect(found.jobs.map(({ id }) => id)).toEqual([inserted[0]?.job.id, 'two', 'one']);
    },
  );

  it('schemaFaults names missing columns and missing or differing indexes', async () => {
    const schema = aSchema();
    const store = await opened(inSchema(schema));
    expect(await store.schemaFaults()).toEqual([]);
    const { jobs, table } = namesIn(schema);
    await pool.query(`drop index ${table('jobs_held')}`);
    await pool.query(`drop index ${table('jobs_claim')}`);
    await pool.query(`create index jobs_claim on ${jobs} (name)`);
    await pool.query(`alter table ${jobs} drop column progress`);
    await pool.query(`create index one_of_mine on ${jobs} (claimed_by)`);
    const faults = await store.schemaFaults();
    expect(faults).toHaveLength(3);
    expect(faults.join('\n')).toMatch(/index jobs_held is missing/u);
    expect(faults.join('\n')).toMatch(/index jobs_claim is CREATE INDEX/u);
    expect(faults.join('\n')).toMatch(/column jobs\.progress is missing/u);
    const { rows } = await pool.query(`select from pg_namespace where nspname like 'tidemill_check%'`);
    expect(rows).toEqual([]);
  });

  it.each(['Ünï "quoted"; drop schema public', "a'b--", 'with.dot', ' ', 'select', '$1', 'x'.repeat(63)])(
    'works in a schema named "%s"',
    async (name) => {
      if (name.trim() === '') {
        expect(() => inSchema(name)).toThrow('schema must be a non-empty string');
        return;
      }
      const schema = name.length === 63 ? name : `${name}${randomBytes(3).toString('hex')}`;
      const mill = aMill(inSchema(schema));
      mill.job('x', (job) => job.data);
      await mill.start();
      expect(await mill.jobs.result((await mill.enqueue('x', 1)).id)).toBe(1);
      const { rows } = await pool.query(`select from pg_namespace where nspname = $1`, [schema]);
      expect(rows).toHaveLength(1);
    },
  );

  it.each([
    ['x'.repeat(64), 'longer than 63 bytes'],
    ['pg_mine', 'which PostgreSQL reserves'],
    ['a\0b', 'cannot store'],
  ])('rejects a schema name that PostgreSQL would reject', (schema, reason) => {
    expect(() => inSchema(schema)).toThrow(reason);
  });

  it('two schemas in the same database are independent', async () => {
    const [one, two] = [aMill(freshPostgres()), aMill(freshPostgres())];
    await one.enqueue('x', 1, { id: 'same', uniqueKey: 'k' });
    expect(await two.enqueue('x', 2, { id: 'same', uniqueKey: 'k' })).toMatchObject({ outcome: 'created' });
    expect(await one.jobs.count()).toBe(1);
  });
});

describe('options of the PostgreSQL store', () => {
  it('postgres() rejects bad options with the fix', () => {
    const url = 'postgres://localhost/x';
    const wrong: [unknown, string][] = [
      [{}, 'pass either url or pool'],
      [{ url, pool: {} }, 'pass either url or pool'],
      [{ url: 'mysql://x' }, 'must begin with postgres://'],
      [{ pool: {} }, 'pool must be a Pool of the pg package'],
      [{ url, shema: 'x' }, 'Did you mean "schema"?'],
      [{ url, connections: 1 }, 'connections must be a whole number from 2'],
      [{ pool, connections: 5 }, 'connections applies to url only'],
      [{ url, notify: 'never' }, 'notify'],
      [{ url, migrate: 1 }, 'migrate must be true or false'],
      [{ url, listenUrl: 'x' }, 'listenUrl must begin with'],
    ];
    for (const [options, reason] of wrong) expect(() => postgres(options as never), reason).toThrow(reason);
  });
});
