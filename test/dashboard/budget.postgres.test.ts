import pg from 'pg';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { Tidemill } from '../../src/index.js';
import { postgres } from '../../src/postgres/index.js';
import { rawPool } from '../support/stores.js';
import { BUDGETS, turned } from './budget.js';
import { aClient, type Client } from './client.js';

const NAMES = ['mail', 'report', 'sync', 'thumb', 'push'];
const TASKS = ['mail', 'sync', 'audit'];
const JOBS = 150_000;
const ROWS = 20_000;

const schema = `test_budget_${Math.random().toString(36).slice(2)}`;
const raw = rawPool();
const pool = new pg.Pool({ connectionString: inject('postgresUrl'), max: 4 });
let mill: Tidemill;
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
  mill = new Tidemill({ store: postgres({ pool, schema }), logger: false });
  await raw.query(`create table public.${schema} (id integer primary key)`);
  for (const task of TASKS)
    await mill.reactiveTask({ task, collection: `public.${schema}`, handler: () => undefined });
  await mill.start({ roles: ['maintain'] });
  const statuses = ['completed', 'completed', 'failed', 'pending', 'cancelled', 'completed', 'failed'];
  await raw.query(`insert into ${schema}.jobs (name, status, data, fail_reason, next_run_at, created_at, updated_at)
    select ${oneOf(NAMES)}, ${oneOf(statuses)}, '{}', 'No room for ' || n, now() + interval '1 day', ${AGO}, ${AGO}
    from generate_series(1, ${String(JOBS)}) n`);
  const states = ['pending', 'completed', 'failed', 'completed', 'failed'];
  await raw.query(`insert into ${schema}.tasks (task, key, source_doc_id, status, scheduled_at, initial_scheduled_at,
      last_error, created_at, updated_at, matched)
    select t, json_build_array(n)::text, to_jsonb(n), ${oneOf(states)}, ${AGO}, ${AGO}, 'No room for ' || n, ${AGO}, ${AGO}, true
    from generate_series(1, ${String(ROWS)}) n cross join unnest(array['${TASKS.join(`','`)}']) t`);
  for (let n = 0; n < 60; n += 1)
    await mill.audit.append({
      actor: 'ada',
      action: 'retry',
      target: `job ${String(n)}`,
      outcome: 'retried',
    });
  await mill.schedule('0 3 * * *', 'report');
  await raw.query(`vacuum analyze ${schema}.jobs, ${schema}.tasks, ${schema}.audit`);
  client = aClient(mill);
  await client.session();
}, 180_000);

afterAll(async () => {
  await mill.stop();
  await pool.end();
  await raw.query(`drop schema ${schema} cascade; drop table public.${schema} cascade`);
});

interface Plan {
  readonly 'Node Type': string;
  readonly 'Relation Name'?: string;
  readonly 'Index Name'?: string;
  readonly 'Actual Rows': number;
  readonly 'Actual Loops': number;
  readonly 'Rows Removed by Filter'?: number;
  readonly 'Rows Removed by Index Recheck'?: number;
  readonly Plans?: readonly Plan[];
}

const TABLES = ['jobs', 'tasks', 'audit', schema];

/** Table rows that a plan read, whether it kept them or not. */
function readBy(plan: Plan): { readonly rows: number; readonly scans: readonly string[] } {
  const below = (plan.Plans ?? []).map(readBy);
  const scans = plan['Node Type'].includes('Scan') && TABLES.includes(plan['Relation Name'] ?? '');
  const removed = (plan['Rows Removed by Filter'] ?? 0) + (plan['Rows Removed by Index Recheck'] ?? 0);
  const own = scans ? Math.round((plan['Actual Rows'] + removed) * plan['Actual Loops']) : 0;
  const name = `${plan['Node Type']} ${plan['Index Name'] ?? plan['Relation Name'] ?? ''} ${String(own)}`;
  return {
    rows: own + below.reduce((sum, one) => sum + one.rows, 0),
    scans: [...(own > 0 ? [name] : []), ...below.flatMap((one) => one.scans)],
  };
}

/** Statements that run under fixed settings arrive as text with a list of values. */
const unwrapped = ({ text, values }: Statement): Statement =>
  text.includes('as answer')
    ? { text: String(values[0]), values: [JSON.parse(String(values[1])) as unknown] }
    : { text, values };

async function costOf(work: () => Promise<unknown>): Promise<{ rows: number; scans: string }> {
  heard = [];
  await work();
  const asked = heard;
  heard = undefined;
  expect(asked.length, 'statements that were heard').toBeGreaterThan(0);
  let rows = 0;
  const scans: string[] = [];
  for (const statement of asked.map(unwrapped)) {
    if (statement.text.includes('set_config')) continue;
    const text = statement.text.replaceAll('$1[', '($1::text[])[');
    const answer = await raw.query<{ 'QUERY PLAN': [{ Plan: Plan }] }>(
      `explain (analyze, format json) ${text}`,
      statement.values,
    );
    const read = readBy(answer.rows[0]!['QUERY PLAN'][0].Plan);
    rows += read.rows;
    scans.push(...read.scans);
  }
  return { rows, scans: scans.join('\n') };
}

describe(`the cost of pages among ${String(JOBS)} jobs and ${String(3 * ROWS)} tasks on PostgreSQL`, () => {
  it.each(BUDGETS)(
    'the page %s and its next page read at most %i rows each on PostgreSQL',
    async (page, most) => {
      let next: string | undefined;
      const first = await costOf(async () => (next = await turned(client, page)));
      expect(first.rows, first.scans).toBeLessThanOrEqual(most);
      if (next === undefined) return;
      const second = await costOf(() => client.get(next!));
      expect(second.rows, second.scans).toBeLessThanOrEqual(most);
    },
  );

  it('the overview counts up to its cap, once for all viewers, on PostgreSQL', async () => {
    const { rows, scans } = await costOf(() =>
      Promise.all(Array.from({ length: 20 }, () => client.get('overview?range=1h'))),
    );
    expect(rows, scans).toBeLessThanOrEqual(JOBS + 3 * ROWS + 5_000);
    const again = await costOf(() => client.get('overview?range=15m'));
    expect(again.rows, again.scans).toBeLessThanOrEqual(1_000);
  });

  it('the detail pages of a job and a task read at most 200 rows on PostgreSQL', async () => {
    const { items } = await client.get<{ items: { id: string }[] }>('work?status=pending');
    const job = await costOf(() => client.get(`work/jobs/${items[0]!.id}`));
    expect(job.rows, job.scans).toBeLessThanOrEqual(200);
    const { items: tasks } = await client.get<{ items: { id: string }[] }>('work?kind=tasks&status=pending');
    const task = await costOf(() => client.get(`work/tasks/${tasks[0]!.id}`));
    expect(task.rows, task.scans).toBeLessThanOrEqual(200);
  });
});
