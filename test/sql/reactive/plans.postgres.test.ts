import { describe, expect, it } from 'vitest';
import type { TaskPlan } from '../../../src/store/reactive/reactive.js';
import { readStatement } from '../../../src/sql/reactive/feed/changes.js';
import { claimStatement, lookStatement, matchingStatement } from '../../../src/sql/reactive/claim.js';
import { namesIn } from '../../../src/sql/schema/names.js';
import type { Sql } from '../../../src/sql/connection/connection.js';
import { depthsStatement } from '../../../src/sql/reactive/query/depths.js';
import { documentsStatement } from '../../../src/sql/reactive/plan/pages.js';
import { planStatement } from '../../../src/sql/reactive/plan/plan.js';
import { togetherStatement } from '../../../src/sql/reactive/plan/together.js';
import { settleStatement } from '../../../src/sql/reactive/settle.js';
import { readShape, type Shape } from '../../../src/sql/tables/shape.js';
import { Tables } from './tables.js';

const ROWS = 50_000;

const PLAN: TaskPlan = {
  task: 'task',
  source: { collection: 'orders' },
  filter: { status: 'paid' },
  debounce: { waitMs: 0, maxWaitMs: 0 },
  resetRetriesOnDataChange: true,
  cleanup: { deleteWhen: 'never', keepForMs: 0 },
  evolution: { handlerVersion: 1, onHandlerVersionChange: 'none', reconcileOnTriggerChange: true },
};

interface Scene {
  readonly tables: Tables;
  readonly sql: Sql;
  readonly shape: Shape;
  /** Relations that the plan reads from end to end. */
  readonly scans: (text: string, values: readonly unknown[]) => Promise<string[]>;
}

/** A large table with a task for each row, nearly all of them finished. */
async function scene(): Promise<Scene> {
  const tables = await Tables.make(
    'create table orders (id integer primary key, status text)',
    `insert into orders select n, 'paid' from generate_series(1, ${String(ROWS)}) n`,
  );
  const store = tables.store();
  const holder = {};
  await store.acquire(holder);
  await tables.ask(`insert into ${tables.schema}.tasks (task, key, source_doc_id, status, scheduled_at, initial_scheduled_at,
      created_at, updated_at, matched, last_observed_values)
    select 'task', json_build_array(id::text)::text, to_jsonb(id), case when id % 1000 = 0 then 'pending' else 'completed' end,
      now(), now(), now(), now(), true, to_jsonb(orders) from orders`);
  await tables.ask(
    `insert into ${tables.schema}.changes (source, key, kind) select 'x', '[]', 'update' from orders`,
  );
  await tables.ask(`analyze`);
  await store.release(holder);
  const names = namesIn(tables.schema);
  const scans = async (text: string, values: readonly unknown[]): Promise<string[]> => {
    const explained = await tables.ask(`explain (format json) ${text}`, [...values]);
    return scanned(explained[0]?.['QUERY PLAN']);
  };
  return {
    tables,
    sql: { names, leaseNow: () => 'statement_timestamp()' } as unknown as Sql,
    shape: (await readShape(tables.pool, tables.schema, { table: 'orders' })) as Shape,
    scans,
  };
}

/** Tables under a sequential scan, anywhere in the plan. */
function scanned(plan: unknown): string[] {
  if (Array.isArray(plan)) return plan.flatMap(scanned);
  if (typeof plan !== 'object' || plan === null) return [];
  const node = plan as Record<string, unknown>;
  const own = node['Node Type'] === 'Seq Scan' ? [String(node['Relation Name'])] : [];
  return [...own, ...Object.values(node).flatMap(scanned)];
}

const KEYS = Array.from({ length: 100 }, (_, at) => JSON.stringify([String(at * 7 + 1)]));
const LARGE = ['orders', 'tasks', 'changes'];
const inline = (text: string): string => text.replaceAll('$1[', '($1::text[])[');

describe('query plans of reactive tasks on a large PostgreSQL table', () => {
  it('planning, claiming, settling, reading changes and counting scan no large table', async () => {
    const { sql, shape, scans } = await scene();
    const planned = planStatement(sql, shape, PLAN, KEYS, false);
    const around = planStatement(sql, shape, PLAN, KEYS, true);
    const tasks = ['task', 'b', 'c'].map((task) => ({ ...PLAN, task }));
    const together = togetherStatement(sql, shape, tasks, { present: KEYS, left: KEYS });
    const matching = matchingStatement(shape, PLAN, KEYS);
    const page = documentsStatement(shape, '["500"]', 1_000);
    const limits = JSON.stringify([{ name: 'task', max: 50, turn: 0 }]);
    const settlement = JSON.stringify([{ at: 0, task: 'task', key: '["1"]', token: 't' }]);
    const gaps = JSON.stringify([{ lo: 1, hi: 1_000_000_000 }]);
    const statements: readonly (readonly [string, readonly unknown[]])[] = [
      [inline(planned.text), [planned.args.texts]],
      [inline(around.text), [around.args.texts]],
      [inline(together.text), [together.args.texts]],
      [inline(matching.text), [matching.args.texts]],
      [inline(page.text), [page.args.texts]],
      [claimStatement(sql), [limits, 50, 'me', 'token']],
      [lookStatement(sql), [JSON.stringify(['task']), JSON.stringify(['task'])]],
      [settleStatement(sql, false, true), [settlement]],
      [settleStatement(sql, true, true), [settlement]],
      [readStatement(sql), [gaps, 1_000]],
      [depthsStatement(sql), [1_000]],
    ];
    for (const [text, values] of statements) {
      const large = (await scans(text, values)).filter((table) => LARGE.includes(table));
      expect(large, text).toEqual([]);
    }
  });
});
