import { describe, expect, inject, it } from 'vitest';
import { sql } from '../../src/postgres/index.js';
import { gate, until } from '../support/mills.js';
import { behindPostgresProxy } from '../support/flaky-proxy.js';
import { freshPostgres, rawPool } from '../support/stores.js';
import { future, past } from './shared/document-fixtures.js';
import { aName, onTable, rowsOf, signal } from './tables.js';

const pool = rawPool();

it('rejects a table whose row-level security hides rows, and names the fix', async () => {
  const [table, role] = [aName(), aName()];
  await pool.query(`create table ${table} (id integer primary key, sleep_until timestamptz)`);
  await pool.query(`alter table ${table} enable row level security`);
  await pool.query(
    `create role ${role} login; grant all on schema public to ${role}; grant all on ${table} to ${role}`,
  );
  const schema = aName();
  await pool.query(`create schema ${schema} authorization ${role}`);
  const at = new URL(inject('postgresUrl'));
  at.username = role;
  const start = (): Promise<void> => onTable(freshPostgres({ url: at.href, schema }), table).schedule.start();
  await expect(start()).rejects.toThrow(/row-level security hides rows.*ALTER ROLE … BYPASSRLS/su);
  await pool.query(`alter role ${role} bypassrls`);
  await start();
});

describe('primary keys of scheduled rows', () => {
  it.each([
    ['a serial number', 'id serial primary key', 'default'],
    ['a number beyond the exact ones', 'id bigint primary key', '9007199254740993'],
    ['a number with digits', 'id numeric primary key', '12345678901234567890.123456789'],
    ['a uuid', 'id uuid primary key', `'0190a2b0-0000-7000-8000-000000000001'`],
    ['a text with anything in it', 'id text primary key', `'";-- ''$1'`],
    ['a time', 'id timestamptz primary key', `'2026-03-02 12:00:00.123456+00'`],
    ['bytes', 'id bytea primary key', `'\\xdeadbeef'`],
    ['a boolean', 'id boolean primary key', 'true'],
    ['an array', 'id integer[] primary key', `'{1,2,3}'`],
    ['an object', 'id jsonb primary key', `'{"a": [1, "x"]}'`],
    ['a float', 'id double precision primary key', '0.1'],
    ['two columns', 'id integer, part text, primary key (part, id)', '7', `, 'eu'`],
  ])('runs and removes a row whose primary key is %s', async (_what, columns, value, more = '') => {
    const table = aName();
    await pool.query(`create table ${table} (${columns}, sleep_until timestamptz, auto_remove boolean)`);
    const names = more === '' ? 'id' : 'id, part';
    await pool.query(
      `insert into ${table} (${names}, sleep_until) values (${value}${more}, now() - interval '1 second')`,
    );
    const { schedule, ran, errors } = onTable(freshPostgres(), table);
    await schedule.start();
    const left = async (): Promise<unknown> =>
      (await pool.query<{ n: string }>(`select count(*) n from ${table} where sleep_until is not null`))
        .rows[0]?.n;
    await until('it is done', async () => (await left()) === '0');
    await until('it is idle', () => schedule.isIdle());
    expect([ran.length, errors]).toEqual([1, []]);
    await pool.query(`update ${table} set auto_remove = true, sleep_until = now()`);
    await until('it is gone', async () => (await pool.query(`select 1 from ${table}`)).rows.length === 0);
  });

  it('job.id is an object of columns for a composite primary key', async () => {
    const table = aName();
    await pool.query(
      `create table ${table} (a integer, b text, sleep_until timestamptz, primary key (b, a))`,
    );
    await pool.query(`insert into ${table} values (1, 'x', now())`);
    const id = gate<unknown>();
    const { schedule } = onTable(freshPostgres(), table, { onDocument: (_row, { job }) => id.open(job.id) });
    await schedule.start();
    expect(await id.promise).toEqual({ b: 'x', a: 1 });
  });
});

describe('columns of scheduled rows', () => {
  it('treats times without a zone as UTC', async () => {
    const table = aName();
    await pool.query(
      `create table ${table} (id integer primary key, sleep_until timestamp, repeat_until timestamp, "interval" text)`,
    );
    await pool.query(`insert into ${table} values (1, '2026-03-02 12:00', null, '0 3 * * *')`);
    const seen = gate<unknown>();
    const { schedule } = onTable(freshPostgres(), table, {
      onDocument: (_row, { job }) => seen.open(job.sleepUntil),
    });
    await schedule.start();
    expect(await seen.promise).toEqual(new Date('2026-03-02T12:00:00Z'));
    await until('it is idle', () => schedule.isIdle());
    const { rows } = await pool.query<{ at: string }>(`select sleep_until::time::text at from ${table}`);
    expect(rows[0]?.at).toBe('03:00:00');
  });

  it('runs rows of tables and columns with hostile or reserved names', async () => {
    const schema = aName();
    await pool.query(`create schema ${schema}`);
    for (const table of [
      'tidemill_due',
      'tidemill_given',
      'tidemill_found',
      'Dr "No"; drop',
      'select',
      'g',
      'r',
    ]) {
      const name = `"${table.replaceAll('"', '""')}"`;
      const column = `"${table.replaceAll('"', '""')}"`;
      await pool.query(
        `create table ${schema}.${name} ("$1 id" integer primary key, ${column} timestamptz, "wann?" jsonb)`,
      );
      await pool.query(`insert into ${schema}.${name} values (1, now() - interval '1 minute')`);
      const { schedule, ran, errors } = onTable(freshPostgres(), `${schema}.${name}`, {
        fields: { sleepUntil: table, failure: 'wann?' },
        retryPolicy: { type: 'fixed', interval: 0, maxAttempts: 2 },
        onDocument: () => {
          throw new Error(`'); drop table ${name}; --`);
        },
      });
      await schedule.start();
      await until('it has ended', async () => {
        const { rows } = await pool.query<{ done: boolean }>(
          `select ${column} is null as done from ${schema}.${name}`,
        );
        return rows[0]?.done === true;
      });
      expect(ran).toEqual(['1', '1']);
      expect(errors.map(({ where }) => where)).toEqual(['onDocument', 'onDocument']);
      await schedule.stop();
    }
  });

  it('needs only the sleepUntil column, and a failure column for a retry policy', async () => {
    const table = aName();
    await pool.query(`create table ${table} (id integer primary key, sleep_until timestamptz)`);
    const retryPolicy = { type: 'fixed', interval: 0 } as const;
    const url = new URL(inject('postgresStoreUrl'));
    url.searchParams.set('application_name', table);
    const refused = onTable(freshPostgres({ url: url.href }), table, { retryPolicy }).schedule.start();
    await expect(refused).rejects.toThrow('ADD COLUMN "scheduleFailure" jsonb');
    await until('it has closed its connections', async () => {
      const mine = `select 1 from pg_stat_activity where application_name = $1`;
      return (await pool.query(mine, [table])).rowCount === 0;
    });
    await pool.query(`insert into ${table} values (1, now())`);
    const { schedule, ran } = onTable(freshPostgres(), table);
    await schedule.start();
    await until('it has run', () => ran.length === 1);
  });

  it('rejects unsuitable tables and columns with an error that names them', async () => {
    const table = aName();
    await pool.query(`create table ${table} (id integer, slep_until timestamptz, day date)`);
    const start = (fields: object = {}, name = table): Promise<void> =>
      onTable(freshPostgres(), name, { fields }).schedule.start();
    await expect(start()).rejects.toThrow('has no primary key');
    await pool.query(`alter table ${table} add primary key (id)`);
    await expect(start()).rejects.toThrow('has no column "sleepUntil" or "sleep_until"');
    await expect(start({ sleepUntil: 'sleep_until' })).rejects.toThrow('Did you mean "slep_until"?');
    await expect(start({ sleepUntil: 'day' })).rejects.toThrow(
      'must be a timestamptz, a timestamp, or inside jsonb',
    );
    await expect(start({ sleepUntil: 'slep_until', failure: 'day' })).rejects.toThrow('must be jsonb');
    await expect(start({}, `${table}x`)).rejects.toThrow('there is no table');
    await pool.query(`create view ${table}_view as select * from ${table}`);
    await expect(start({}, `${table}_view`)).rejects.toThrow('is not a table');
    expect(() => onTable(freshPostgres(), table, { database: 'x' })).toThrow(
      'an option of the MongoDB store',
    );
    expect(() => onTable(freshPostgres(), table, { condition: { a: { $where: 1 } } })).toThrow('$where');
  });

  it('keeps running rows after the columns of their table change', async () => {
    const table = aName();
    await pool.query(`create table ${table} (id integer primary key, sleep_until timestamptz)`);
    const { schedule, ran, errors } = onTable(freshPostgres(), table);
    await schedule.start();
    await until('it is idle', () => schedule.isIdle());
    await pool.query(`alter table ${table} add column more text, alter column id type bigint`);
    await pool.query(`insert into ${table} values (1, now())`);
    await until('it is done', async () => {
      const { rows } = await pool.query(`select 1 from ${table} where sleep_until is null`);
      return rows.length === 1;
    });
    expect([ran, errors]).toEqual([['1'], []]);
  });
});

describe('conditions in SQL', () => {
  it('runs only rows that match a condition in SQL', async () => {
    const table = aName();
    await pool.query(
      `create table ${table} (id integer primary key, sleep_until timestamptz, total integer)`,
    );
    await pool.query(`insert into ${table} values (1, now(), 5), (2, now(), 50), (3, now(), null)`);
    const { schedule, ran } = onTable(freshPostgres(), table, {
      condition: sql`total > ${10} -- big`,
    });
    await schedule.start();
    await until('it is idle', () => schedule.isIdle());
    expect(ran).toEqual(['2']);
  });
});

describe('schedules inside JSON columns', () => {
  const fields = {
    sleepUntil: 'plan.cron.at',
    interval: 'plan.cron.every',
    failure: 'plan.trouble',
    autoRemove: 'plan.once',
  };

  it.each(['jsonb', 'json'])(
    'reads and writes a schedule inside a %s column without touching the rest',
    async (type) => {
      const table = aName();
      await pool.query(`create table ${table} (id integer primary key, plan ${type})`);
      const plan = (more: object): string =>
        JSON.stringify({ cron: { at: past(), zone: 1 }, keep: '$x', ...more });
      await pool.query(`insert into ${table} values (1, $1), (2, $2), (3, $3), (4, null), (5, '[]')`, [
        plan({}),
        plan({ once: true }),
        plan({ cron: { at: past(), every: '@yearly' }, fails: true }),
      ]);
      let fails = 1;
      const { schedule, ran, errors } = onTable(freshPostgres(), table, {
        fields,
        concurrency: 4,
        retryPolicy: { type: 'fixed', interval: 0 },
        onDocument: (row) => {
          if ((row['plan'] as Record<string, unknown>)['fails'] === true && (fails -= 1) >= 0)
            throw new Error('bad');
        },
      });
      await schedule.start();
      await until('all have run', () => ran.length === 4);
      await until('it is idle', () => schedule.isIdle());
      const { rows } = await pool.query<{ id: number; plan: { cron: { at: string } } | null }>(
        `select * from ${table} order by id`,
      );
      expect(rows.map(({ id }) => id)).toEqual([1, 3, 4, 5]);
      expect(rows[0]?.plan).toEqual({ cron: { at: null, zone: 1 }, keep: '$x' });
      expect(rows[1]?.plan).toEqual({
        cron: { at: expect.stringMatching(/^\d{4}-01-01T00:00:00.000Z$/u) as unknown, every: '@yearly' },
        keep: '$x',
        fails: true,
      });
      expect(errors.map(({ where }) => where)).toEqual(['onDocument']);
    },
  );

  it('never runs a row whose JSON sleepUntil is no ISO time, and reports each one once', async () => {
    const table = aName();
    await pool.query(`create table ${table} (id serial primary key, plan jsonb)`);
    const values = ['2020-01-01', 5, true, 'tomorrow', '', '2020-01-01 10:00:00+00', { a: 1 }];
    for (const at of values)
      await pool.query(`insert into ${table} (plan) values ($1)`, [JSON.stringify({ cron: { at } })]);
    const { schedule, ran, errors } = onTable(freshPostgres(), table, { fields });
    await schedule.start();
    await until('all are reported', () => errors.length >= values.length);
    const { rows } = await pool.query<{ plan: unknown }>(`select plan from ${table} order by id`);
    expect(rows.map(({ plan }) => plan)).toEqual(values.map((at) => ({ cron: { at } })));
    expect([ran, new Set(errors.map(({ where }) => where)).size, errors.length]).toEqual([
      [],
      1,
      values.length,
    ]);
  });

  it('reports a JSON sleepUntil that only looks like a time, and does not run the row', async () => {
    const table = aName();
    await pool.query(`create table ${table} (id serial primary key, plan jsonb)`);
    await pool.query(`insert into ${table} (plan) values ('{"cron": {"at": "2020-13-45T99:99:99.000Z"}}')`);
    const { schedule, ran, errors } = onTable(freshPostgres(), table, { fields });
    await schedule.start();
    await until('it is reported', () => errors.length > 0);
    await until('it is idle', () => schedule.isIdle());
    expect([ran, errors.length]).toEqual([[], 1]);
  });
});

describe('rows locked by other transactions', () => {
  it('records the other rows while a transaction blocks one of them', async () => {
    const table = aName();
    await pool.query(`create table ${table} (id integer primary key, sleep_until timestamptz)`);
    await pool.query(`insert into ${table} select n, now() from generate_series(1, 4) n`);
    const blocker = await pool.connect();
    const { schedule, ran, errors } = onTable(freshPostgres(), table, {
      concurrency: 4,
      onDocument: async (row) => {
        if (row['id'] !== 2) return;
        await blocker.query('begin');
        await blocker.query(`select 1 from ${table} where id = 2 for update`);
      },
    });
    await schedule.start();
    const done = async (): Promise<number> =>
      (await pool.query(`select 1 from ${table} where sleep_until is null`)).rows.length;
    await until('the others are recorded', async () => (await done()) === 3);
    await until('it is told', () => errors.length > 0);
    await blocker.query('commit');
    blocker.release();
    await until('all are recorded', async () => (await done()) === 4);
    expect(ran).toHaveLength(4);
    expect(errors[0]?.error.message).toContain('An open transaction holds a document');
  });

  it('renews the locks of other rows while a transaction blocks one of them', async () => {
    const table = aName();
    await pool.query(`create table ${table} (id integer primary key, sleep_until timestamptz)`);
    await pool.query(`insert into ${table} select n, now() from generate_series(1, 3) n`);
    const blocker = await pool.connect();
    const end = gate();
    const { schedule, ran } = onTable(freshPostgres(), table, {
      concurrency: 3,
      lockDuration: '3s',
      onDocument: () => end.promise,
    });
    await schedule.start();
    await until('all run', () => ran.length === 3);
    await blocker.query('begin');
    await blocker.query(`select 1 from ${table} where id = 2 for update`);
    const locks = async (): Promise<number[]> => {
      const { rows } = await pool.query<{ at: Date }>(`select sleep_until at from ${table} where id <> 2`);
      return rows.map(({ at }) => at.getTime());
    };
    const before = Math.max(...(await locks()));
    await until('the others are renewed', async () => Math.min(...(await locks())) > before);
    await blocker.query('rollback');
    blocker.release();
    end.open();
    await until('all are recorded', async () => {
      const { rows } = await pool.query(`select 1 from ${table} where sleep_until is null`);
      return rows.length === 3;
    });
  });
});

describe('responses of PostgreSQL lost on the way to a document scheduler', () => {
  it('records a row once and does not rerun it when the response to the write is lost', async () => {
    const { proxy, url } = await behindPostgresProxy();
    const table = aName();
    await pool.query(
      `create table ${table} (id integer primary key, sleep_until timestamptz, "interval" text)`,
    );
    await pool.query(`insert into ${table} values (1, now(), '@yearly')`);
    const { schedule, ran } = onTable(freshPostgres({ url }), table, {
      onDocument: () => void (proxy.picky = (request) => request.includes('tidemill_written')),
    });
    await schedule.start();
    await until('an answer was lost', () => proxy.lost > 0);
    proxy.picky = undefined;
    await until('it is recorded', () => !schedule.isProcessing());
    expect(ran).toEqual(['1']);
    const { rows } = await pool.query<{ at: Date }>(`select sleep_until at from ${table}`);
    expect(rows[0]?.at.toISOString()).toMatch(/-01-01T00:00:00.000Z$/u);
  });

  it('runs a row after its lock expires when the response to the lock is lost', async () => {
    const { proxy, url } = await behindPostgresProxy();
    const table = aName();
    await pool.query(`create table ${table} (id integer primary key, sleep_until timestamptz)`);
    const { schedule, ran } = onTable(freshPostgres({ url }), table, { lockDuration: '2s' });
    await schedule.start();
    await until('it is idle', () => schedule.isIdle());
    // A prepared statement is known by its name only; of all statements, a lock alone carries a time.
    proxy.picky = (request) => /\d{4}-\d\d-\d\dT[\d:.]+Z/u.test(request.toString('latin1'));
    await pool.query(`insert into ${table} values (1, now())`);
    await until('an answer was lost', () => proxy.lost > 0);
    proxy.picky = undefined;
    await until('it has run', () => ran.length === 1);
  });
});

describe("the server's clock and rows", () => {
  it("refuses to lock a row until a time that has passed on the server's clock", async () => {
    const table = aName();
    await pool.query(`create table ${table} (id integer primary key, sleep_until timestamptz)`);
    await pool.query(`insert into ${table} values (1, now())`);
    const store = freshPostgres();
    const rows = await rowsOf(store, { collection: table });
    store.clock.learn(past(3_600_000), performance.now(), performance.now());
    expect(await rows.lockNext(new Date(store.clock.now() + 60_000), { signal })).toBeUndefined();
    await rows.look({ withinMs: 0, known: [], signal });
    expect(await rows.lockNext(future(60_000), { signal })).toMatchObject({ id: 1 });
    await rows.close?.();
  });
});

describe('misfits among due times inside JSON', () => {
  const NO_TIMES = [
    '25 December 2026',
    '21 December 2026',
    '2 January',
    '30.06.2027',
    '31/12/2026',
    '3rd of May',
    '39th',
    'tomorrow',
    '2020-01-01',
    '',
    '7 March',
  ];

  it('finds every JSON sleepUntil that is no ISO time within 25 looks', async () => {
    const table = aName();
    await pool.query(`create table ${table} (id serial primary key, plan jsonb)`);
    for (const at of [...NO_TIMES, '2099-12-31T00:00:00.000Z', '3999-12-31T00:00:00.000Z'])
      await pool.query(`insert into ${table} (plan) values (jsonb_build_object('at', $1::text))`, [at]);
    const rows = await rowsOf(freshPostgres(), { collection: table, fields: { sleepUntil: 'plan.at' } });
    const known: unknown[] = [];
    const found: unknown[] = [];
    for (let look = 0; look < 25; look += 1) {
      const { misfits } = await rows.look({ withinMs: 0, known, signal });
      known.push(...misfits.map(({ id }) => id));
      found.push(...misfits.map(({ value }) => value));
    }
    expect(found.sort()).toEqual([...NO_TIMES].sort());
    await rows.close?.();
  });
});
