import { expect, it } from 'vitest';
import type { Sql } from '../../../src/sql/connection.js';
import { namesIn } from '../../../src/sql/names.js';
import { ChangeReader } from '../../../src/sql/reactive/changes.js';
import { Ledger } from '../../../src/sql/reactive/ledger.js';
import { Tables } from './tables.js';

/** The tables of Tidemill, and nobody who reads them but the test. */
async function aReader(): Promise<{ tables: Tables; reader: ChangeReader }> {
  const tables = await Tables.make();
  const [store, holder] = [tables.store(), {}];
  await store.acquire(holder);
  await store.release(holder);
  const sql = { names: namesIn(tables.schema), driver: tables.pool } as unknown as Sql;
  return { tables, reader: new ChangeReader(sql, new Ledger(), 1_000) };
}

it('a number is asked for until its transaction has ended, however many looks that takes', async () => {
  const { tables, reader } = await aReader();
  const [writer, other] = [await tables.connection(), await tables.connection()];
  const note = `insert into ${tables.schema}.changes (source, key, kind) values ('x', $1, 'insert')`;
  // Other tests' transactions end as well; several rounds, so that there is one with none.
  for (let round = 1; round <= 10; round += 1) {
    // As with a table that is watched, whose rows are written before the change is noted.
    for (const client of [writer, other]) await client.query('begin; select pg_current_xact_id()');
    await writer.query(note, [`early ${String(round)}`]);
    for (let look = 0; look < 4; look += 1) expect(await reader.read()).toEqual([]);
    await other.query(note, [`late ${String(round)}`]);
    await other.query('commit');
    expect(await reader.read()).toMatchObject([{ key: `late ${String(round)}` }]);
    for (let look = 0; look < 4; look += 1) expect(await reader.read()).toEqual([]);
    await writer.query('commit');
    expect(await reader.read()).toMatchObject([{ key: `early ${String(round)}` }]);
  }
});
