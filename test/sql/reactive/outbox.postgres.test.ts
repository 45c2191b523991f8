import { expect, it } from 'vitest';
import type { Tidemill } from '../../../src/index.js';
import type { PostgresStore } from '../../../src/postgres/index.js';
import { scraped } from '../../metrics/text.js';
import { until } from '../../support/mills.js';
import { Tables } from './tables.js';

const LIMIT = 100;
const ITEMS = 'create table items (id integer primary key, n integer)';

class Outbox {
  readonly tables: Tables;
  readonly lost: string[] = [];

  constructor(tables: Tables) {
    this.tables = tables;
  }

  static async make(): Promise<Outbox> {
    return new Outbox(await Tables.make(ITEMS));
  }

  mill(): Tidemill<PostgresStore> {
    const mill = this.tables.mill(this.tables.store({ outboxLimit: LIMIT }));
    void this.tables.define(mill, { collection: 'items' });
    mill.on('history:lost', ({ reason }) => this.lost.push(reason));
    return mill;
  }

  async started(): Promise<Tidemill<PostgresStore>> {
    const mill = this.mill();
    const before = this.tables.reconciled.length;
    await mill.start();
    await until('the table was looked at', () => this.tables.reconciled.length > before);
    return mill;
  }

  /** Watches the table, and stops the only instance. */
  async watched(): Promise<void> {
    await (await this.started()).stop();
  }

  /** One statement for each row. */
  async write(from: number, to: number): Promise<void> {
    for (let id = from; id <= to; id += 1)
      await this.tables.ask(
        'insert into items values ($1, 1) on conflict (id) do update set n = items.n + 1',
        [id],
      );
  }

  async fill(): Promise<void> {
    await this.write(1, 3 * LIMIT);
  }

  async number(what: string): Promise<number> {
    const [row] = await this.tables.ask(
      `select (${what.replaceAll('$', `${this.tables.schema}.`)})::int as n`,
    );
    return row?.['n'] as number;
  }

  /** How many generations of missed changes have not been reconciled. */
  owed(): Promise<number> {
    return this.number('(select last_value from $capture_missed) - (select settled from $outbox)');
  }

  size(): Promise<number> {
    return this.number('select count(*) from $changes');
  }
}

it('triggers stop recording changes at the limit of the outbox, and a new leader reconciles instead', async () => {
  const outbox = await Outbox.make();
  const { tables } = outbox;
  await tables.ask('insert into items values (1000, 1)');
  await outbox.watched();
  await outbox.fill();
  await tables.ask('delete from items where id = 1000');
  expect(await outbox.size()).toBeGreaterThanOrEqual(LIMIT);
  expect(await outbox.size()).toBeLessThanOrEqual(1.3 * LIMIT);

  const mill = outbox.mill();
  const full = (await mill.doctor()).find(({ check }) => check === 'outbox');
  expect(full).toMatchObject({
    status: 'fail',
    found: expect.stringMatching(/outbox is full.*limit is 100/u) as string,
  });
  await mill.start();
  for (const id of [1, LIMIT, 2 * LIMIT, 3 * LIMIT]) await tables.ran(id);
  await until('the deleted row no longer matches', async () => {
    const [row] = await tables.ask(`select matched from ${tables.schema}.tasks where key = '["1000"]'`);
    return row?.['matched'] === false;
  });
  expect(outbox.lost).toEqual([
    'The outbox reached its limit of 100 changes, and later changes were not recorded.',
  ]);

  await outbox.write(2 * LIMIT, 2 * LIMIT);
  await tables.ran(2 * LIMIT, 2);
  await tables.quiet();
  expect(await outbox.owed()).toBe(0);
  expect((await mill.doctor()).find(({ check }) => check === 'outbox')).toMatchObject({ status: 'ok' });
});

/** Changes are recorded again, while a transaction whose change was left out is still open. */
async function leftOut() {
  const outbox = await Outbox.make();
  await outbox.watched();
  await outbox.fill();
  const open = await outbox.tables.connection();
  await open.query('begin');
  await open.query('update items set n = 77 where id = 1');
  const mill = outbox.mill();
  await mill.start();
  await until(
    'changes are recorded again',
    async () => (await outbox.number('select last_value from $capture_generation')) === 2,
  );
  return { outbox, open, mill };
}

async function reconciled(outbox: Outbox): Promise<void> {
  await until('the change that was left out ran', () =>
    outbox.tables.of(1).some(({ values }) => values['n'] === 77),
  );
  expect(await outbox.owed()).toBe(0);
}

it('the reconciliation begins only after every transaction that left changes out has ended', async () => {
  const { outbox, open, mill } = await leftOut();
  const { tables } = outbox;
  await outbox.write(5_000, 5_000);
  await tables.ran(5_000);
  expect(await outbox.owed()).toBe(1);
  const waits = (await mill.doctor()).find(({ check }) => check === 'outbox');
  expect(waits).toMatchObject({
    status: 'warn',
    found: expect.stringContaining('not reconciled yet') as string,
  });

  await open.query('commit');
  await reconciled(outbox);
});

it('a reconciliation stays owed if the leader ends after changes are recorded again', async () => {
  const { outbox, open, mill: first } = await leftOut();
  await first.stop();
  await open.query('commit');
  expect(await outbox.owed()).toBe(1);

  await outbox.mill().start();
  await reconciled(outbox);
});

it('a transaction that alone exceeds the limit stops recording, and the running leader reconciles', async () => {
  const outbox = await Outbox.make();
  const { tables } = outbox;
  await outbox.started();
  const large = await tables.connection();
  await large.query('begin');
  for (let id = 1; id <= 3 * LIMIT; id += 1) await large.query('insert into items values ($1, 1)', [id]);
  await large.query('commit');
  for (const id of [1, 2 * LIMIT, 3 * LIMIT]) await tables.ran(id);
  expect(outbox.lost.length).toBeGreaterThan(0);
});

it('a rollback of the transaction that stopped recording still leads to a reconciliation', async () => {
  const outbox = await Outbox.make();
  const { tables } = outbox;
  await outbox.watched();
  const large = await tables.connection();
  await large.query('begin');
  for (let id = 1; id <= 3 * LIMIT; id += 1) await large.query('insert into items values ($1, 1)', [id]);
  // Left out because the transaction above stopped recording, and committed before it ends.
  await outbox.write(9_000, 9_000);
  await large.query('rollback');
  await outbox.mill().start();
  await tables.ran(9_000);
});

it('deleted changes that an old snapshot still sees do not count towards the limit', async () => {
  const outbox = await Outbox.make();
  const { tables } = outbox;
  await outbox.started();
  await outbox.write(1, 20);
  const old = await tables.connection();
  await old.query('begin isolation level repeatable read');
  await old.query(`select count(*) from ${tables.schema}.changes`);
  for (let round = 0; round < 4; round += 1) {
    await outbox.write(1, LIMIT / 2);
    await tables.quiet();
  }
  await old.query('insert into items values (6000, 1)');
  await old.query('commit');
  await tables.ran(6_000);
  expect(outbox.lost).toEqual([]);
  expect(await outbox.number('select last_value from $capture_missed')).toBe(0);
});

it('a trigger function of an older version gets the limit without a reconciliation', async () => {
  const outbox = await Outbox.make();
  const { tables } = outbox;
  await outbox.watched();
  const source = async (): Promise<string> => {
    const [row] = await tables.ask(
      `select p.proname, p.prosrc from pg_proc p join pg_namespace n on n.oid = p.pronamespace
       where n.nspname = $1 and starts_with(p.proname, 'capture_')`,
      [tables.schema],
    );
    expect(row).toBeDefined();
    return row?.['prosrc'] as string;
  };
  const current = await source();
  const [row] = await tables.ask(
    `select pg_get_functiondef(p.oid) as text from pg_proc p join pg_namespace n on n.oid = p.pronamespace
     where n.nspname = $1 and starts_with(p.proname, 'capture_')`,
    [tables.schema],
  );
  const older = (row?.['text'] as string).replace(/if not [^;]*may_capture[^;]*; end if;/u, '');
  await tables.ask(older);
  expect(await source()).not.toContain('may_capture');

  const reconciled = tables.reconciled.length;
  await outbox.mill().start();
  expect(await source()).toBe(current);
  await outbox.write(1, 1);
  await tables.ran(1);
  expect(tables.reconciled.length).toBe(reconciled);
});

it('metrics report the size, the age and the stop of the outbox while no instance plans', async () => {
  const outbox = await Outbox.make();
  await outbox.watched();
  await outbox.fill();
  const mill = outbox.tables.mill();
  await mill.start({ roles: ['work'] });
  const values = await scraped(mill);
  expect(values.get('tidemill_outbox_stopped')).toBe(1);
  expect(values.get('tidemill_outbox_changes')).toBeGreaterThanOrEqual(LIMIT);
  expect(values.get('tidemill_outbox_changes')).toBeLessThanOrEqual(1.3 * LIMIT);
  expect(values.get('tidemill_outbox_age_seconds')).toBeGreaterThan(0);
});

it('outboxLimit must be a whole number of at least 100', async () => {
  const tables = await Tables.make();
  expect(() => tables.store({ outboxLimit: 10 })).toThrow(
    'postgres(): outboxLimit must be a whole number of at least 100, got 10.',
  );
});
