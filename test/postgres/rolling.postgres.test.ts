import { afterEach, expect, it, vi } from 'vitest';
import type { PostgresOptions, PostgresStore } from '../../src/postgres/index.js';
import { migrations } from '../../src/sql/migrations/index.js';
import type { Names } from '../../src/sql/names.js';
import { aMill, until } from '../support/mills.js';
import { Tables } from '../sql/reactive/tables.js';

/** What the next version of the library might bring: it takes hold of both tables of work, while others use them. */
const next = {
  version: migrations.length + 1,
  name: 'next',
  up: ({ jobs, table }: Names) => [
    `alter table ${jobs} add column region text not null default 'here'`,
    `create index jobs_by_region on ${jobs} (region)`,
    `alter table ${table('tasks')} add column region text not null default 'here'`,
  ],
};

afterEach(() => {
  vi.doUnmock('../../src/sql/migrations/index.js');
  vi.resetModules();
});

/** The library as it is, with one migration more. */
async function newer(options: PostgresOptions): Promise<PostgresStore> {
  vi.resetModules();
  vi.doMock('../../src/sql/migrations/index.js', () => ({ migrations: [...migrations, next] }));
  const { postgres } = await import('../../src/postgres/index.js');
  return postgres(options);
}

it('newer code migrates while older instances run: they go on beside it, and none of the older starts any more', async () => {
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
  await expect(tables.mill().start()).rejects.toThrow(/which a newer version of Tidemill made/u);

  // The older one is alone again, on the newer schema.
  await beside.stop();
  await older.enqueue('x', 'last');
  await tables.ask('insert into orders values (0)');
  await until('both ran', () => done.includes('last') && tables.of(0).length === 1);
});
