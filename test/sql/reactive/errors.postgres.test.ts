import { describe, expect, it } from 'vitest';
import { sql } from '../../../src/postgres/index.js';
import { until } from '../../support/mills.js';
import { Tables } from './tables.js';

/** Raises what the row says, as a function of an extension might. */
const RAISES = `create function raises(code text) returns boolean language plpgsql as $$
  begin
    if code <> 'ok' then raise exception 'a fault of this row' using errcode = code; end if;
    return true;
  end $$`;
/** Codes that are usually about the server, and here are about a row. */
const CODES = ['XX000', '53200', '53400', '58030', '58P01', '57014', '57P01', '40001', '42704', '08006'];

describe('rows on which the filter raises an error', () => {
  it('a row on which the filter raises any error fails with the message, and blocks no other', async () => {
    const tables = await Tables.make(
      RAISES,
      'create table places (id integer primary key, code text)',
      'create table others (id integer primary key)',
    );
    const mill = tables.mill();
    void tables.define(mill, { collection: 'places', filter: sql`raises(code)` });
    void tables.define(mill, { task: 'plain', collection: 'others' });
    await mill.start();
    const rows = CODES.map((code, at) => `(${String(at + 1)}, '${code}')`);
    await tables.ask(`insert into places values (0, 'ok'), ${rows.join(', ')}, (100, 'ok')`);
    await tables.ask('insert into others values (200)');
    await Promise.all([0, 100, 200].map((id) => tables.ran(id)));
    for (const at of CODES.keys()) {
      const task = await tables.settled(mill, at + 1, 'failed');
      expect(task.lastError).toBe('It could not be planned: a fault of this row');
    }
    await until('nothing is kept back', async () => {
      const [row] = await tables.ask(`select count(*)::int as n from ${tables.schema}.changes`);
      return row?.['n'] === 0;
    });
    expect(tables.runs).toHaveLength(3);
    await tables.ask(`update places set code = 'ok' where id = 1`);
    await tables.ran(1);
  });
});
