import { expect, it, vi } from 'vitest';
import { postgres, type PostgresOptions, type PostgresStore } from '../../src/postgres/index.js';
import { migrations } from '../../src/sql/schema/migrations/index.js';
import type { Migration } from '../../src/sql/schema/migrations/migration.js';
import type { Names } from '../../src/sql/schema/names.js';
import { aMill, until } from '../support/mills.js';
import { Tables } from '../sql/reactive/tables.js';

/** The version of the schema that this code makes. */
const newest = migrations.at(-1)?.version ?? 0;

/** What the next version of the library might bring: it alters both tables of work while others use them. */
const next: Migration = {
  version: newest + 1,
  name: 'next',
  compatibleSince: newest,
  up: ({ jobs, table }: Names) => [
    `alter table ${jobs} add column region text not null default 'here'`,
    `create index jobs_by_region on ${jobs} (region)`,
    `alter table ${table('tasks')} add column region text not null default 'here'`,
  ],
};

/** The library as it is, with one more migration. */
async function newer(options: PostgresOptions, step: Migration = next): Promise<PostgresStore> {
  vi.resetModules();
  vi.doMock('../../src/sql/schema/migrations/index.js', () => ({ migrations: [...migrations, step] }));
  const { postgres } = await import('../../src/postgres/index.js');
  // What older instances load on first use must be as it is.
  vi.doUnmock('../../src/sql/schema/migrations/index.js');
  vi.resetModules();
  return postgres(options);
}

it('older instances keep running and restart while newer code migrates a compatible schema', async () => {
  const tables = await Tables.make('create table orders (id integer primary key)');
  const done: unknown[] = [];
  const work = (mill: ReturnType<Tables['mill']>): Promise<void> => {
    mill.job('x', (job) => done.push(job.data));
    return tables.define(mill, { collection: 'orders' });
  };
  const older = tables.mill();
  await work(older);
  await older.start();
  let sent = 0;
  let over = false;
  const produce = async (): Promise<void> => {
    while (!over) {
      sent += 1;
      await older.enqueue('x', sent);
      await tables.ask('insert into orders values ($1)', [sent]);
    }
  };
  const producing = produce();
  const running = (count: number): Promise<unknown> =>
    until(`${String(count)} of each have run`, () => done.length >= count && tables.runs.length >= count);
  await running(20);

  const store = await newer({ url: tables.url, schema: tables.schema });
  const beside = aMill(store) as ReturnType<Tables['mill']>;
  await work(beside);
  await beside.start();
  expect(await tables.ask(`select max(version) as version from ${tables.schema}.migrations`)).toEqual([
    { version: next.version },
  ]);
  await running(done.length + 50);
  over = true;
  await producing;
  await until('all have run', () => new Set(done).size === sent && tables.runs.length >= sent);
  expect(done).toHaveLength(sent);
  expect(tables.errors).toEqual([]);

  // The older one is alone again, on the newer schema, and was restarted.
  await beside.stop();
  await older.stop();
  await older.start();
  await older.enqueue('x', 'last');
  await tables.ask('insert into orders values (0)');
  await until('both ran', () => done.includes('last') && tables.of(0).length === 1);
});

it.each([
  ['says nothing of older programs', undefined],
  ['needs programs that are newer than this', newest + 1],
])('refuses a newer schema that %s, and the doctor reports it', async (_what, compatibleSince) => {
  const tables = await Tables.make('create table orders (id integer primary key)');
  const { compatibleSince: _since, ...step } = next;
  const options = { url: tables.url, schema: tables.schema };
  const store = await newer(options, compatibleSince === undefined ? step : { ...step, compatibleSince });
  await aMill(store).jobs.count();
  const older = aMill(postgres(options));
  await expect(older.start()).rejects.toThrow(
    `works with versions from ${String(newest + 1)} on; this one knows ${String(newest)}`,
  );
  const findings = await aMill(postgres({ ...options, migrate: 'unchecked' })).doctor();
  expect(findings.find(({ check }) => check === 'schema')).toMatchObject({ status: 'fail' });
});

it('the doctor accepts a newer schema that is compatible with older programs', async () => {
  const tables = await Tables.make('create table orders (id integer primary key)');
  const options = { url: tables.url, schema: tables.schema };
  await aMill(await newer(options)).jobs.count();
  const findings = await aMill(postgres({ ...options, migrate: false })).doctor();
  expect(findings.find(({ check }) => check === 'schema')).toMatchObject({ status: 'ok' });
});
