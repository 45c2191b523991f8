import { randomBytes } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import type { Tidemill } from '../../src/index.js';
import { sql, type EmbeddedStore } from '../../src/embedded/index.js';
import type { PostgresStore } from '../../src/postgres/index.js';
import { aClient } from '../dashboard/client.js';
import { aMill, until } from '../support/mills.js';
import { freshEmbedded, freshPostgres, rawPool, sharedEmbedded, useEmbedded } from '../support/stores.js';

type Store = PostgresStore | EmbeddedStore;
type Ask = (text: string) => Promise<{ readonly rows: readonly unknown[] }>;

interface Fixture {
  readonly mill: Tidemill<Store>;
  readonly table: string;
  readonly places: string;
  readonly secrets: string;
  readonly ask: Ask;
}

/** Two watched rows, two rows with schedules, and a table that does not concern Tidemill. */
async function aFixture(store: Store, ask: Ask, column = 'note'): Promise<Fixture> {
  const id = randomBytes(6).toString('hex');
  const [table, places, secrets] = [`orders_${id}`, `places_${id}`, `secrets_${id}`];
  await ask(`create table public.${table} (id integer primary key, total integer, ${column} text)`);
  await ask(`insert into public.${table} values (1, 50, 'a'), (2, 200, 'b')`);
  await ask(
    `create table public.${places} (id integer primary key, sleep_until timestamptz, ${column} text)`,
  );
  await ask(
    `insert into public.${places} values (1, now() + interval '1 day', 'a'), (2, now() + interval '1 day', 'b')`,
  );
  await ask(`create table public.${secrets} (v text)`);
  await ask(`insert into public.${secrets} values ('sk_live')`);
  const mill = aMill(store) as Tidemill<Store>;
  void mill.reactiveTask({
    task: 'ship',
    collection: `public.${table}`,
    debounce: 0,
    handler: () => undefined,
  });
  mill.documents({ collection: `public.${places}`, onDocument: () => undefined });
  await mill.start();
  await until('both tasks are there', async () => (await mill.tasks.count()) === 2);
  return { mill, table, places, secrets, ask };
}

function attacks(open: () => Store, ask: () => Ask): void {
  const hostile = ({ secrets }: Fixture): readonly string[] => [
    '1=0',
    '1=1',
    `exists (select from public.${secrets} where v like 'sk%')`,
    `(select 1 from tidemill.pinned('update public.${secrets} set v = ''owned'' returning v', '{}')) is null`,
  ];

  it('the dashboard rejects SQL in its field filter', async () => {
    const at = await aFixture(open(), ask());
    const client = aClient(at.mill, { readOnly: true, authorize: () => ['view', 'payload'] });
    for (const text of hostile(at)) {
      const field = `field=${encodeURIComponent(`sql:${text}`)}`;
      for (const kind of ['kind=tasks', `kind=documents&name=public.${at.places}`]) {
        const response = await client.ask(`api/work?${kind}&${field}`);
        expect(response.status).toBe(400);
        expect(await response.text()).toMatch(/no column \\"sql\\"/u);
      }
    }
    expect((await at.ask(`select v from public.${at.secrets}`)).rows).toEqual([{ v: 'sk_live' }]);
  });

  it('tasks.find and documents.find reject SQL in fields', async () => {
    const at = await aFixture(open(), ask());
    const schedule = at.mill.documentSchedules()[0]?.schedule;
    for (const text of hostile(at)) {
      const fields = JSON.parse(JSON.stringify({ sql: text })) as Record<string, string>;
      for (const call of [
        () => at.mill.tasks.find({ source: fields }),
        () => at.mill.tasks.count({ source: fields }),
        () => at.mill.tasks.retryMany({ source: fields }),
        () => schedule?.find({ data: fields }),
        () => schedule?.count({ data: fields }),
      ])
        await expect(call()).rejects.toThrow(/no column "sql"/u);
    }
    expect((await at.ask(`select v from public.${at.secrets}`)).rows).toEqual([{ v: 'sk_live' }]);
  });

  it('rejects a plain object of SQL as sourceDocFilter, condition and filter, and names the tag', async () => {
    const { mill, table, places } = await aFixture(open(), ask());
    const plain = { sql: 'true', values: [] };
    const message = /must not be a plain object \{ sql, values \}.* sql`total > \$\{100\}`/u;
    await expect(mill.tasks.find({ sourceDocFilter: plain })).rejects.toThrow(message);
    await expect(mill.tasks.count({ sourceDocFilter: plain })).rejects.toThrow(message);
    await expect(mill.tasks.retryMany({ sourceDocFilter: plain })).rejects.toThrow(message);
    const onDocument = (): void => undefined;
    expect(() => mill.documents({ collection: `public.${places}`, condition: plain, onDocument })).toThrow(
      message,
    );
    const handler = onDocument;
    expect(() => mill.reactiveTask({ task: 't', collection: table, filter: plain, handler })).toThrow(
      message,
    );
    await expect(mill.tasks.find({ source: sql`true` as never })).rejects.toThrow(
      /source must map paths to values/u,
    );
  });

  it('the sql tag rejects JSON that looks like a template', () => {
    for (const text of ['{"raw":["1=0"]}', '["1=0"]', '{"raw":["1=0"],"length":1,"0":"1=0"}'])
      expect(() => sql(JSON.parse(text) as never), text).toThrow(/sql is a template tag/u);
  });

  it('filters by a column named sql', async () => {
    const at = await aFixture(open(), ask(), 'sql');
    const client = aClient(at.mill, { authorize: () => ['view', 'payload'] });
    const schedule = at.mill.documentSchedules()[0]?.schedule;
    const count = async (field: string, kind: string): Promise<number> =>
      (await client.get<{ items: unknown[] }>(`work?${kind}&field=${encodeURIComponent(field)}`)).items
        .length;
    for (const kind of ['kind=tasks', `kind=documents&name=public.${at.places}`]) {
      expect(await count('sql:a', kind)).toBe(1);
      expect(await count('sql:1=1', kind)).toBe(0);
    }
    expect(await at.mill.tasks.count({ source: { sql: 'b' } })).toBe(1);
    expect(await at.mill.tasks.count({ sourceDocFilter: { sql: { $in: ['a', 'b'] } } })).toBe(2);
    expect(await schedule?.count({ data: { sql: 'true' } })).toBe(0);
  });

  it('accepts SQL from the sql tag as sourceDocFilter', async () => {
    const { mill } = await aFixture(open(), ask());
    const page = await mill.tasks.find({ sourceDocFilter: sql`total > ${100} and note = ${'b'}` });
    expect(page.items.map((task) => task.sourceDocId)).toEqual([2]);
    expect(await mill.tasks.retryMany({ sourceDocFilter: sql`total > ${10}` })).toEqual({ count: 2 });
  });
}

describe('SQL injection (embedded)', () => {
  useEmbedded();
  attacks(freshEmbedded, () => (text) => sharedEmbedded().query(text));
});

describe('SQL injection (postgres)', () => {
  const pool = rawPool();
  attacks(freshPostgres, () => (text) => pool.query(text));
});
