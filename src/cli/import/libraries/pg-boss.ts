/** Reads the queues of pg-boss 10 to 12. */
import type { RetryPolicy } from '../../../index.js';
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

const MAPPING = [
  ['queue', 'name of a job'],
  ['start_after', 'runAt'],
  ['singleton_key, in a queue with the policy short, stately or exclusive', 'uniqueKey'],
  ['group_id', 'key, by which limits.perKey of the definition counts the job'],
  ['retry_limit, retry_delay, retry_backoff, retry_delay_max', 'retryPolicy, with the attempts so far'],
  ['expire_seconds, expire_in', 'timeout'],
  ['priority', 'priority, cut to -10 to 10'],
  ['failed', 'a failed job, which `tidemill retry` runs again'],
  ['schedule', 'a schedule with the same cron text, zone and key'],
] as const;

interface BossRow extends SourceRow {
  readonly id: string;
  readonly name: string;
  readonly state: string;
  readonly data: unknown;
  readonly priority: number;
  readonly retry_limit: number;
  readonly retry_count: number;
  readonly retry_delay: number;
  readonly retry_backoff: boolean;
  readonly retry_delay_max?: number | null;
  readonly expire_seconds?: number | null;
  readonly singleton_key: string | null;
  readonly start_after: Date;
  readonly created_on: Date;
  readonly started_on: Date | null;
  readonly completed_on: Date | null;
  readonly output: unknown;
  readonly dead_letter?: string | null;
  readonly policy?: string | null;
  readonly group_id?: string | null;
  readonly blocked?: boolean;
  readonly running_ms?: string | null;
}

/** The queue through which a run of a schedule goes to its own queue. */
const FORWARDED = '__pgboss__send-it';
const LIVE = "state::text in ('created', 'retry', 'active')";
const OWN = String.raw`\_\_pgboss\_\_%`;
const UNIQUE: readonly unknown[] = ['short', 'stately', 'exclusive'];
const PLAIN: readonly unknown[] = [null, undefined, '', 'standard', ...UNIQUE];

const timeoutOf = ({ expire_seconds: seconds }: BossRow): number | undefined =>
  typeof seconds === 'number' ? seconds * 1_000 : undefined;

export async function openPgBoss(options: SourceOptions): Promise<Source> {
  const tables = await openTables(options.url, options.schema ?? 'pgboss', {
    marks: ['job', 'schedule', 'version'],
    library: 'pg-boss',
  });
  return {
    place: tables.place,
    mapping: MAPPING,
    count: () => countsOf(tables),
    read: () => readAll(tables, options),
    version: versionOf,
    remove: (records) => remove(tables, records as readonly BossRow[]),
    [Symbol.asyncDispose]: () => tables[Symbol.asyncDispose](),
  };
}

async function countsOf({ query, name }: Tables): Promise<readonly Count[]> {
  const rows = await query(
    `select state::text as state, count(*)::integer as count from ${name('job')} where name not like $1
     group by state order by state`,
    [OWN],
  );
  const [schedules] = await query(`select count(*)::integer as count from ${name('schedule')}`);
  const [forwarded] = await query(
    `select count(*)::integer as count from ${name('job')} where name = $1 and ${LIVE}`,
    [FORWARDED],
  );
  const isOver = (state: string): boolean => state === 'completed' || state === 'cancelled';
  return [
    ...(rows as readonly { state: string; count: number }[]).map((row) => ({
      ...row,
      finished: isOver(row.state),
    })),
    { state: 'schedules', count: schedules?.['count'] as number },
    ...((forwarded?.['count'] as number) > 0
      ? [{ state: 'runs of schedules on their way', count: forwarded?.['count'] as number }]
      : []),
  ];
}

async function* readAll(tables: Tables, options: SourceOptions): AsyncGenerator<readonly Reading[]> {
  const { query, name, pages } = tables;
  // Columns differ between versions, so all of them are read.
  const schedules = await query(
    `select s.*, s.xmin::text as row_version, row_to_json(q) as queue from ${name('schedule')} s
     left join ${name('queue')} q on q.name = s.name order by s.name`,
  );
  if (schedules.length > 0) yield schedules.map((row) => scheduleOf(row, options));
  const forwarded = await query(
    `select j.*, j.xmin::text as row_version, row_to_json(q) as queue from ${name('job')} j
     left join ${name('queue')} q on q.name = j.data ->> 'name' where j.name = $1 and j.${LIVE} order by j.id`,
    [FORWARDED],
  );
  if (forwarded.length > 0) yield forwarded.map((row) => forwardedOf(row as BossRow));
  // Version 10 has an interval, `expire_in`.
  const expire =
    "coalesce((to_jsonb(j) ->> 'expire_seconds')::float8, extract(epoch from (to_jsonb(j) ->> 'expire_in')::interval)::float8)";
  const text = `select j.*, ${expire} as expire_seconds, j.xmin::text as row_version,
      extract(epoch from now() - j.started_on) * 1000 as running_ms
    from ${name('job')} j
    where j.name not like $1 and j.state::text in ('created', 'retry', 'active', 'failed') and (j.name, j.id) > ($2, $3)
    order by j.name, j.id limit $4`;
  const first = ['', '00000000-0000-0000-0000-000000000000'];
  yield* pages(
    text,
    [OWN],
    first,
    (row) => [row['name'], row['id']],
    (row) => jobOf(row as BossRow, options),
  );
}

function retriesOf(row: {
  readonly retry_limit: number;
  readonly retry_delay: number;
  readonly retry_backoff: boolean;
  readonly retry_delay_max?: number | null;
}): RetryPolicy {
  const maxAttempts = row.retry_limit + 1;
  if (!row.retry_backoff) return { type: 'fixed', interval: row.retry_delay * 1_000, maxAttempts };
  // Its first delay is between one and two times `retry_delay`.
  const min = Math.max(1, row.retry_delay) * 2_000;
  const max = Math.max(min, (row.retry_delay_max ?? 65_536 * Math.max(1, row.retry_delay)) * 1_000);
  return { type: 'exponential', min, max, jitter: 0.5, maxAttempts };
}

function jobOf(row: BossRow, options: SourceOptions): Reading {
  const { id, name, state } = row;
  const common = { key: `${name}/${id}`, name, record: row };
  const left = (reason: string): Reading => ({ kind: 'left', ...common, reason });
  if (row.blocked === true) return left('it waits for other jobs of a flow');
  const limitMs = options.lockLifetimeMs ?? (row.expire_seconds ?? 900) * 1_000;
  const isLost = state === 'active' && Number(row.running_ms ?? 0) > limitMs;
  if (state === 'active' && !isLost && !options.includeRunning)
    return left('it runs there now, and has not expired (--include-running imports it)');
  const { priority, differs } = priorityOf(row.priority);
  const isFailed = state === 'failed' || (isLost && row.retry_count >= row.retry_limit);
  const failures = isFailed || isLost || state === 'retry' ? row.retry_count + 1 : row.retry_count;
  const unique = UNIQUE.includes(row.policy) ? { uniqueKey: row.singleton_key ?? name } : {};
  return {
    kind: 'job',
    ...common,
    job: {
      id: `pg-boss:${name}/${id}`,
      name,
      data: row.data,
      runAt: (isLost ? row.started_on : null) ?? row.start_after,
      createdAt: row.created_on,
      priority,
      ...unique,
      key: row.group_id ?? undefined,
      retryPolicy: retriesOf(row),
      timeoutMs: timeoutOf(row),
      past: failures === 0 ? undefined : pastOf(row, failures, isFailed, isLost),
    },
    differs: [
      ...differs,
      ...(PLAIN.includes(row.policy)
        ? []
        : [`its queue has the policy ${String(row.policy)}, which has no counterpart`]),
      ...((row.dead_letter ?? null) === null
        ? []
        : ['its dead letter queue: set deadLetter of the definition']),
      ...((row.group_id ?? null) === null ? [] : ['its group: set limits.perKey of the definition']),
      ...(isLost ? ['it expired there without an end: that counts as a failed attempt'] : []),
      ...(state === 'active' && !isLost ? ['it ran there when it was read: it may run twice'] : []),
    ],
  };
}

function pastOf(
  row: BossRow,
  failures: number,
  failed: boolean,
  isLost: boolean,
): NonNullable<(Reading & { kind: 'job' })['job']['past']> {
  const output = (row.output ?? {}) as { message?: unknown; stack?: unknown; value?: unknown };
  const told = [output.message, output.value, row.output].find((one) => typeof one === 'string');
  const failReason = isLost ? 'it expired without an end' : (told ?? 'failed');
  const failedAt = row.completed_on ?? row.started_on ?? row.created_on;
  if (!failed) return { failed, failCount: failures, failReason, failKind: 'error', firstFailedAt: failedAt };
  const stack = typeof output.stack === 'string' ? output.stack : undefined;
  return {
    failed,
    ...failedPast({ failReason, attempt: failures, failedAt, startedAt: row.started_on ?? undefined, stack }),
  };
}

/** A run of a schedule that has not reached its queue. */
function forwardedOf(row: BossRow): Reading {
  const { name, data, options: own } = (row.data ?? {}) as Partial<ScheduleRow>;
  const common = { key: `${FORWARDED}/${row.id}`, name: name ?? '', record: row };
  if (name === undefined) return { kind: 'left', ...common, reason: 'it is a run of an unknown queue' };
  const given = givenOf({ queue: row['queue'] as ScheduleRow['queue'], options: own ?? null });
  const { priority, differs } = priorityOf(typeof given.priority === 'number' ? given.priority : 0);
  return {
    kind: 'job',
    ...common,
    job: {
      id: `pg-boss:${FORWARDED}/${row.id}`,
      name,
      data: data ?? null,
      runAt: row.start_after,
      createdAt: row.created_on,
      priority,
      retryPolicy: retriesOf(given),
      timeoutMs: timeoutOf(given),
    },
    differs,
  };
}

interface ScheduleRow extends SourceRow {
  readonly name: string;
  readonly key?: string;
  readonly kind?: string;
  readonly cron: string;
  readonly timezone: string | null;
  readonly data: unknown;
  readonly options: Readonly<Record<string, unknown>> | null;
  readonly queue: Readonly<Record<string, unknown>> | null;
}

function scheduleOf(found: SourceRow, { timezone }: SourceOptions): Reading {
  const row = found as unknown as ScheduleRow;
  const { name, key = '' } = row;
  const common = { key: `schedule ${name}${key === '' ? '' : ` (${key})`}`, name, record: row };
  if (row.kind !== undefined && row.kind !== 'cron')
    return { kind: 'left', ...common, reason: `its times are of the kind ${row.kind}, and not cron text` };
  const given = givenOf(row);
  const { priority, differs } = priorityOf(typeof given.priority === 'number' ? given.priority : 0);
  return {
    kind: 'schedule',
    ...common,
    schedule: {
      name,
      uniqueKey: key === '' ? undefined : key,
      times: row.cron,
      timezone: row.timezone ?? timezone,
      data: row.data,
      priority,
      retryPolicy: retriesOf(given),
      timeoutMs: timeoutOf(given),
    },
    differs,
  };
}

/** What a queue has if nothing else is said. */
const DEFAULTS = { retry_limit: 2, retry_delay: 0, retry_backoff: false };

/** The options of a schedule, and of the jobs that it makes: its own, then those of its queue. */
const givenOf = ({ queue, options }: Pick<ScheduleRow, 'queue' | 'options'>): BossRow =>
  ({ ...DEFAULTS, ...known(queue ?? {}), ...known(camelOf(options ?? {})) }) as unknown as BossRow;

/** Leaves out what is null, which means the default. */
const known = (options: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> =>
  Object.fromEntries(Object.entries(options).filter(([, value]) => value !== null));

const OPTIONS: Readonly<Record<string, string>> = {
  retryLimit: 'retry_limit',
  retryDelay: 'retry_delay',
  retryBackoff: 'retry_backoff',
  retryDelayMax: 'retry_delay_max',
  expireInSeconds: 'expire_seconds',
  priority: 'priority',
};

const camelOf = (options: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> =>
  Object.fromEntries(
    Object.entries(options).flatMap(([option, value]) =>
      OPTIONS[option] === undefined ? [] : [[OPTIONS[option], value]],
    ),
  );

async function remove(tables: Tables, rows: readonly BossRow[]): Promise<readonly boolean[]> {
  const { name } = tables;
  const isSchedule = (row: SourceRow): boolean => 'cron' in row;
  const jobs = rows.filter((row) => !isSchedule(row));
  const schedules = rows.filter(isSchedule) as readonly SourceRow[];
  const removed = new Set<SourceRow>([
    ...(await unchangedOnly(tables, jobs, (given) => ({
      text: `delete from ${name('job')} j using ${given} g
        where j.name = g.a and j.id = g.b::uuid and j.xmin::text = g.row_version returning g.at`,
      keys: jobs.map((row) => [row.name, row.id] as const),
    }))),
    ...(await unchangedOnly(tables, schedules, (given) => ({
      text: `delete from ${name('schedule')} s using ${given} g
        where s.name = g.a and to_jsonb(s) ->> 'key' is not distinct from g.b and s.xmin::text = g.row_version returning g.at`,
      keys: schedules.map(
        (row) => [row['name'] as string, (row['key'] as string | undefined) ?? null] as const,
      ),
    }))),
  ]);
  return rows.map((row) => removed.has(row));
}
