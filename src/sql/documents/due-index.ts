import type { Sql } from '../connection/connection.js';
import { sortKey, dueStatement } from './lock.js';
import type { DocumentTable } from './table.js';
import { run } from '../connection/errors.js';
import { quoted } from '../schema/names.js';

interface PlanNode {
  readonly 'Index Cond'?: string;
  readonly Plans?: readonly PlanNode[];
}

const conditionsOf = (node: PlanNode): string[] => [
  ...(node['Index Cond'] === undefined ? [] : [node['Index Cond']]),
  ...(node.Plans ?? []).flatMap(conditionsOf),
];

/**
 * Asks the server for its plan, with sequential scans made expensive: a small table it would read in whole, whatever
 * its indexes.
 */
export async function documentIndexFaults({ driver }: Sql, table: DocumentTable): Promise<readonly string[]> {
  const { text, args } = dueStatement(table);
  const answer = await run('explain the search for documents', () =>
    driver.transaction(async (transaction) => {
      await transaction.query('set local enable_seqscan = off');
      return transaction.query(`explain (format json) ${text}`, args.texts);
    }),
  );
  const said: unknown = answer.rows[0]?.['QUERY PLAN'];
  const [plan] = (typeof said === 'string' ? JSON.parse(said) : said) as readonly {
    readonly Plan: PlanNode;
  }[];
  const { column, path } = table.sleepUntil;
  const name = path.at(-1) ?? column.name;
  if (plan !== undefined && conditionsOf(plan.Plan).some((condition) => condition.includes(name))) return [];
  const { sleepUntil, from, shape } = table;
  const expression = sleepUntil.kind === 'json' ? `(${sortKey(sleepUntil)})` : quoted(column.name);
  const create = `CREATE INDEX CONCURRENTLY ON ${from} (${expression.replaceAll(`${quoted(shape.table)}.`, '')})`;
  return [
    `${shape.name}: no index serves the search for due documents, so each poll reads the whole table; create one: ${create}`,
  ];
}
