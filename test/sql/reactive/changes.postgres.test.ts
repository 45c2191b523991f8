import { expect, it } from 'vitest';
import type { Sql } from '../../../src/sql/connection/connection.js';
import { namesIn } from '../../../src/sql/schema/names.js';
import { ChangeReader } from '../../../src/sql/reactive/feed/changes.js';
import { SequenceGaps } from '../../../src/sql/reactive/feed/sequence-gaps.js';
import { Tables } from './tables.js';

/** The tables of Tidemill, read by nothing but the test. */
async function aReader(): Promise<{ tables: Tables; reader: ChangeReader; gaps: SequenceGaps }> {
  const tables = await Tables.make();
  const [store, holder] = [tables.store(), {}];
  await store.acquire(holder);
  await store.release(holder);
  // Time flies: at each look, a mark has waited for long.
  let now = 0;
  const clock = { monotonic: () => (now += 10_000) };
  const sql = { names: namesIn(tables.schema), driver: tables.pool, clock } as unknown as Sql;
  const gaps = new SequenceGaps();
  return { tables, gaps, reader: new ChangeReader(sql, gaps, 1_000) };
}

it('a gap in the sequence is read until its transaction has ended, however many looks that takes', async () => {
  const { tables, reader } = await aReader();
  const [writer, other] = [await tables.connection(), await tables.connection()];
  const note = `insert into ${tables.schema}.changes (source, key, kind) values ('x', $1, 'insert')`;
  // Transactions of other tests end as well; several rounds make sure that there is one with none.
  for (let round = 1; round <= 10; round += 1) {
    // As with a watched table, whose rows are written before the change is recorded.
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

it('gives up numbers that were rolled back, but not those of open transactions', async () => {
  const { tables, reader, gaps } = await aReader();
  const [elsewhere, writer, idle] = [
    await tables.connection(),
    await tables.connection(),
    await tables.connection(),
  ];
  const note = `insert into ${tables.schema}.changes (source, key, kind) values ('x', $1, 'insert')`;
  await elsewhere.query('begin; select pg_current_xact_id()');
  for (let number = 1; number <= 20; number += 1) {
    await idle.query('begin');
    await idle.query(note, [`undone ${String(number)}`]);
    await idle.query('rollback');
    await idle.query(note, [`done ${String(number)}`]);
  }
  expect(await reader.read()).toHaveLength(20);
  expect(gaps.gaps()).toHaveLength(21);
  for (let look = 0; look < 3; look += 1) await reader.read();
  expect(gaps.gaps()).toHaveLength(1);
  // Below a savepoint: the number is taken, but not visible yet.
  await writer.query('begin; savepoint s');
  await writer.query(note, ['early']);
  await idle.query(note, ['late']);
  expect(await reader.read()).toMatchObject([{ key: 'late' }]);
  for (let look = 0; look < 6; look += 1) await reader.read();
  expect(gaps.gaps()).toHaveLength(2);
  await writer.query('commit');
  expect(await reader.read()).toMatchObject([{ key: 'early' }]);
  await elsewhere.query('rollback');
});
