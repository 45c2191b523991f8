/** Reads the jobs of graphile-worker 0.14 and newer. */
import type { SourceRow } from '../../../mill/tools.js';
import { openTables, unchangedOnly, versionOf, type Tables } from '../postgres-tables.js';
import {
  failedPast,
  priorityOf,
  type Count,
  type Reading,
  type Source,
  type SourceOptions,
} from '../reading.js';

/** How old a lock must be there before another worker takes the job. */
const LOCK_LIFETIME_MS = 4 * 3_600_000;

const MAPPING = [
  ['task identifier', 'name of a job'],
  ['run_at', 'runAt'],
  ['job_key', 'uniqueKey, which counts within the name'],
  ['attempts, max_attempts', 'the attempts so far, and maxAttempts; the same exponential delays'],
  ['priority, lower first', 'priority, higher first: the opposite number, cut to -10 to 10'],
  ['attempts used up, last_error', 'a failed job, which `tidemill retry` runs again'],
] as const;

interface GraphileRow extends SourceRow {
  readonly id: string;
  readonly task: string;
  readonly queue_name: string | null;
  readonly payload: unknown;
  readonly run_at: Date;
  readonly attempts: number;
  readonly max_attempts: number;
  readonly last_error: string | null;
  readonly created_at: Date;
  readonly updated_at: Date;
  readonly created_text: string;
  readonly key: string | null;
  readonly priority: number;
  readonly locked_at: Date | null;
  readonly locked_ms: string | null;
  readonly flags: unknown;
}

/** As there: e, e², e³ … seconds, up to e¹⁰. */
const retriesOf = (maxAttempts: number): object => ({
  type: 'exponential',
  min: Math.round(Math.E * 1_000),
  max: Math.round(Math.E ** 10 * 1_000),
  factor: Math.E,
  maxAttempts,
});

export async function openGraphile(options: SourceOptions): Promise<Source> {
  const tables = await openTables(options.url, options.schema ?? 'graphile_worker', {
    marks: ['_private_jobs', '_private_tasks', '_private_job_queues', '_private_known_crontabs'],
    library: 'graphile-worker',
  });
  return {
    place: tables.place,
    mapping: MAPPING,
    count: () => countsOf(tables),
    read: () => readAll(tables, options),
    version: versionOf,
    remove: (records) => remove(tables, records as readonly GraphileRow[]),
    [Symbol.asyncDispose]: () => tables[Symbol.asyncDispose](),
  };
}

async function countsOf({ query, name }: Tables): Promise<readonly Count[]> {
  const rows = await query(
    `select case when locked_at is not null then 'locked' when attempts >= max_attempts then 'failed' else 'waiting' end
      as state, count(*)::integer as count from ${name('_private_jobs')} group by 1 order by 1 desc`,
  );
  const [crontabs] = await query(`select count(*)::integer as count from ${name('_private_known_crontabs')}`);
  return [
    ...(rows as unknown as readonly Count[]),
    { state: 'known crontabs', count: crontabs?.['count'] as number },
  ];
}

async function* readAll(
  { query, name, pages }: Tables,
  options: SourceOptions,
): AsyncGenerator<readonly Reading[]> {
  const crontabs = await query(
    `select identifier from ${name('_private_known_crontabs')} order by identifier`,
  );
  if (crontabs.length > 0) yield crontabs.map(crontabOf);
  const text = `select j.*, j.id::text as id, t.identifier as task, q.queue_name, j.xmin::text as row_version,
      to_char(j.created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as created_text,
      extract(epoch from now() - j.locked_at) * 1000 as locked_ms
    from ${name('_private_jobs')} j join ${name('_private_tasks')} t on t.id = j.task_id
    left join ${name('_private_job_queues')} q on q.id = j.job_queue_id
    where j.id > $1 order by j.id limit $2`;
  yield* pages(
    text,
    [],
    ['0'],
    ({ id }) => [id],
    (row) => jobOf(row as GraphileRow, options),
  );
}

const crontabOf = ({ identifier }: SourceRow): Reading => ({
  kind: 'left',
  key: `crontab ${String(identifier)}`,
  name: String(identifier),
  record: undefined,
  reason: 'its times are in the crontab of the old application, and not in the database: call mill.schedule',
});

function jobOf(row: GraphileRow, options: SourceOptions): Reading {
  const { id, task: name, attempts } = row;
  const common = { key: id, name, record: row };
  const isLocked = row.locked_at !== null;
  const isLost = isLocked && Number(row.locked_ms) > (options.lockLifetimeMs ?? LOCK_LIFETIME_MS);
  if (isLocked && !isLost && !options.includeRunning)
    return {
      kind: 'left',
      ...common,
      reason: 'it runs there now: its lock is younger than the lock lifetime (--include-running imports it)',
    };
  const { priority, differs } = priorityOf(row.priority === 0 ? 0 : -row.priority);
  // A running attempt is counted already; it is not one that failed.
  const failures = isLocked && !isLost ? attempts - 1 : attempts;
  const failed = failures >= row.max_attempts;
  return {
    kind: 'job',
    ...common,
    job: {
      // Ids begin at 1 in each database; the time keeps those of two databases apart.
      id: `graphile-worker:${id}@${row.created_text}`,
      name,
      data: row.payload,
      runAt: (isLost ? row.locked_at : null) ?? row.run_at,
      createdAt: row.created_at,
      priority,
      uniqueKey: row.key ?? undefined,
      retryPolicy: retriesOf(row.max_attempts) as NonNullable<
        (Reading & { kind: 'job' })['job']['retryPolicy']
      >,
      past: failures < 1 ? undefined : pastOf(row, failures, failed),
    },
    differs: [
      ...differs,
      ...(row.queue_name === null
        ? []
        : ['its queue ran one job at a time: set concurrency of the definition, or use withLock']),
      ...(row.flags === null ? [] : ['its flags, which have no counterpart']),
      ...(isLost ? ['its lock was older than the lock lifetime: that counts as a failed attempt'] : []),
      ...(isLocked && !isLost ? ['it ran there when it was read: it may run twice'] : []),
    ],
  };
}

function pastOf(
  row: GraphileRow,
  failures: number,
  failed: boolean,
): NonNullable<(Reading & { kind: 'job' })['job']['past']> {
  const failReason = row.last_error ?? 'its attempts were used up without an error';
  const failedAt = row.updated_at;
  if (!failed) return { failed, failCount: failures, failReason, failKind: 'error', firstFailedAt: failedAt };
  return { failed, ...failedPast({ failReason, attempt: failures, failedAt }) };
}

async function remove(tables: Tables, rows: readonly GraphileRow[]): Promise<readonly boolean[]> {
  const removed = new Set(
    await unchangedOnly(tables, rows, (given) => ({
      text: `delete from ${tables.name('_private_jobs')} j using ${given} g
        where j.id = g.a::bigint and j.xmin::text = g.row_version returning g.at`,
      keys: rows.map(({ id }) => [id, null] as const),
    })),
  );
  return rows.map((row) => removed.has(row));
}
