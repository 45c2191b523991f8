import pg from 'pg';
import { afterAll, beforeAll, expect, inject } from 'vitest';
import { Tidemill } from '../../src/index.js';
import { postgres } from '../../src/postgres/index.js';
import { rowsOf, scansOf, type Plan, type Scan } from '../support/explain.js';
import { rawPool } from '../support/stores.js';
import {
  budgetFacts,
  fillAudit,
  JOBS,
  NAMES,
  STATUSES,
  TASK_STATUSES,
  TASKS,
  TASKS_EACH,
  type Cost,
} from './budget.js';
import { aClient, type Client } from './client.js';

const schema = `test_budget_${Math.random().toString(36).slice(2)}`;
const raw = rawPool();
const pool = new pg.Pool({ connectionString: inject('postgresUrl'), max: 4 });
let viewer: Tidemill;
let client: Client;

interface Statement {
  readonly text: string;
  readonly values: unknown[];
}
let heard: Statement[] | undefined;

/** Records what the store queries, on any connection. */
function listen(connection: pg.PoolClient): void {
  const query = connection.query.bind(connection) as (...given: unknown[]) => unknown;
  Object.assign(connection, {
    query: (first: string | Statement, second?: unknown[], ...rest: unknown[]) => {
      const text = typeof first === 'string' ? first : first.text;
      const values = (typeof first === 'string' ? second : first.values) ?? [];
      if (/^\s*(?:select|with)\b/iu.test(text))
        heard?.push({ text, values: Array.isArray(values) ? values : [] });
      return query(first, second, ...rest);
    },
  });
}

const oneOf = (list: readonly string[]): string =>
  `(array['${list.join(`','`)}'])[1 + n % ${String(list.length)}]`;
const AGO = `now() - n * interval '10 ms'`;

beforeAll(async () => {
  pool.on('connect', listen);
  const mill = new Tidemill({ store: postgres({ pool, schema }), logger: false });
  await raw.query(`create table public.${schema} (id integer primary key)`);
  for (const task of TASKS)
    await mill.reactiveTask({ task, collection: `public.${schema}`, handler: () => undefined });
  await mill.start({ roles: ['maintain'] });
  await raw.query(`insert into ${schema}.jobs (name, status, data, fail_reason, next_run_at, created_at, updated_at)
    select ${oneOf(NAMES)}, ${oneOf(STATUSES)}, '{}', 'No room for ' || n, now() + interval '1 day', ${AGO}, ${AGO}
    from generate_series(1, ${String(JOBS)}) n`);
  await raw.query(`insert into ${schema}.tasks (task, key, source_doc_id, status, scheduled_at, initial_scheduled_at,
      last_error, created_at, updated_at, matched)
    select t, json_build_array(n)::text, to_jsonb(n), ${oneOf(TASK_STATUSES)}, ${AGO}, ${AGO}, 'No room for ' || n, ${AGO}, ${AGO}, true
    from generate_series(1, ${String(TASKS_EACH)}) n cross join unnest(array['${TASKS.join(`','`)}']) t`);
  await fillAudit(mill);
  await mill.schedule('0 3 * * *', 'report');
  await raw.query(`vacuum analyze ${schema}.jobs, ${schema}.tasks, ${schema}.audit`);
  // An instance that maintains has statements of its own, which would count as the page's.
  await mill.stop();
  viewer = new Tidemill({ store: postgres({ pool, schema }), logger: false });
  client = aClient(viewer);
  await client.session();
}, 180_000);

afterAll(async () => {
  await viewer.stop();
  await pool.end();
  await raw.query(`drop schema ${schema} cascade; drop table public.${schema} cascade`);
});

const TABLES = ['jobs', 'tasks', 'audit', schema];

const inWords = ({ plan, rows }: Scan): string =>
  `${plan['Node Type']} ${plan['Index Name'] ?? plan['Relation Name'] ?? ''} ${String(rows)}`;

/** Statements that run under fixed settings arrive as text with a list of values. */
const unwrapped = ({ text, values }: Statement): Statement =>
  text.includes('as answer')
    ? { text: String(values[0]), values: [JSON.parse(String(values[1])) as unknown] }
    : { text, values };

async function costOf(work: () => Promise<unknown>): Promise<Cost> {
  heard = [];
  await work();
  const asked = heard;
  heard = undefined;
  expect(asked.length, 'statements that were heard').toBeGreaterThan(0);
  const scans: Scan[] = [];
  for (const statement of asked.map(unwrapped)) {
    if (statement.text.includes('set_config')) continue;
    const text = statement.text.replaceAll('$1[', '($1::text[])[');
    const answer = await raw.query<{ 'QUERY PLAN': [{ Plan: Plan }] }>(
      `explain (analyze, format json) ${text}`,
      statement.values,
    );
    scans.push(...scansOf(answer.rows[0]!['QUERY PLAN'][0].Plan, TABLES));
  }
  const read = scans.filter(({ rows }) => rows > 0);
  return { examined: rowsOf(scans), plans: read.map(inWords).join('\n') };
}

budgetFacts({ on: 'PostgreSQL', unit: 'rows', client: () => client, costOf });
