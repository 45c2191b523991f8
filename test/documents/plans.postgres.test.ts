import { beforeAll, describe, expect, it } from 'vitest';
import { lockStatement, lookStatement } from '../../src/sql/documents/lock.js';
import type { DocumentParameters } from '../../src/sql/documents/parameters.js';
import { readTable, type DocumentTable } from '../../src/sql/documents/table.js';
import { writeStatement } from '../../src/sql/documents/write.js';
import { freshPostgres, rawPool } from '../support/stores.js';
import { future } from './shared/document-fixtures.js';
import { aName, rowsOf } from './tables.js';

const COUNT = 100_000;
/** Pages of the index and the table together; one lookup in an index of this size reads three. */
const MOST_PAGES = 20;

const pool = rawPool();
const table = aName();

interface PlanNode {
  readonly 'Node Type': string;
  readonly 'Shared Hit Blocks': number;
  readonly 'Shared Read Blocks': number;
  readonly Plans?: readonly PlanNode[];
}

const nodesOf = (node: PlanNode): string[] => [node['Node Type'], ...(node.Plans ?? []).flatMap(nodesOf)];

async function cost({
  text,
  args,
}: {
  text: string;
  args: DocumentParameters;
}): Promise<{ nodes: string[]; pages: number }> {
  const { rows } = await pool.query<{ 'QUERY PLAN': [{ Plan: PlanNode }] }>(
    `explain (analyze, buffers, format json) ${text}`,
    args.texts,
  );
  const { Plan: plan } = rows[0]!['QUERY PLAN'][0];
  return { nodes: nodesOf(plan), pages: plan['Shared Hit Blocks'] + plan['Shared Read Blocks'] };
}

const places = [
  ['a column', { sleepUntil: 'sleep_until' }],
  ['a path into JSON', { sleepUntil: 'plan.at' }],
] as const;

const read = (fields: { readonly sleepUntil: string }): Promise<DocumentTable> =>
  readTable('test', pool, 'tidemill', { collection: table, fields });

describe('polls among 100,000 waiting and 100,000 parked rows on PostgreSQL', () => {
  beforeAll(async () => {
    await pool.query(`create table ${table} (id serial primary key, sleep_until timestamptz, plan jsonb)`);
    await pool.query(
      `insert into ${table} (sleep_until, plan)
       select at, jsonb_build_object('at', to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))
       from (select case when n % 2 = 0 then now() + interval '1 hour' + n * interval '1 ms' end as at
         from generate_series(1, ${String(2 * COUNT)}) n) s`,
    );
    await pool.query(`vacuum analyze ${table}`);
  });

  it.each(places)(
    'names the index that a document schedule lacks on PostgreSQL (%s)',
    async (_what, fields) => {
      const rows = await rowsOf(freshPostgres(), { collection: table, fields });
      const [fault, ...others] = await rows.indexFaults();
      expect([fault, others]).toEqual([expect.stringContaining('CREATE INDEX CONCURRENTLY ON'), []]);
      await pool.query(fault!.slice(fault!.indexOf('CREATE INDEX')));
      await pool.query(`analyze ${table}`);
      expect(await rows.indexFaults()).toEqual([]);
      await rows.close?.();
    },
  );

  it.each(places)(
    'polls on PostgreSQL read at most 20 pages and scan no table (%s)',
    async (_what, fields) => {
      const at = await read(fields);
      const statements = [
        lookStatement(at, { withinMs: 1_000, known: [] }),
        lookStatement(at, { withinMs: 1_000, known: [1, 2], turn: 6 }),
        lockStatement(at, { lockUntil: future(60_000), limit: 1, guarded: true }),
        lockStatement(at, { lockUntil: future(60_000), limit: 100, guarded: true }),
      ];
      for (const statement of statements) {
        const { nodes, pages } = await cost(statement);
        expect(nodes).not.toContain('Seq Scan');
        expect(pages).toBeLessThanOrEqual(MOST_PAGES);
      }
    },
  );

  it.each(places)(
    'writes of document schedules on PostgreSQL find rows by primary key (%s)',
    async (_what, fields) => {
      const at = await read(fields);
      const writes = [5, 6].map((id) => ({ id, ifSleepUntil: future(1), changes: { sleepUntil: null } }));
      const { nodes, pages } = await cost(writeStatement(at, writes, false));
      expect(nodes).not.toContain('Seq Scan');
      expect(pages).toBeLessThanOrEqual(MOST_PAGES);
    },
  );
});
