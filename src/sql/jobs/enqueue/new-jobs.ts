import { OptionError } from '../../../core/errors.js';
import { lazily } from '../../../core/lazily.js';
import type { NewJob } from '../../../store/port.js';
import { batchOf, type BatchColumn } from '../../connection/batch.js';
import { lockLimitOf } from '../../connection/around-locks.js';
import { NOTIFY, wakeMessage } from '../../cluster/notifier.js';
import type { Sql } from '../../connection/connection.js';
import type { Queryable } from '../../connection/driver.js';
import { isTimed, newId } from './ids.js';
import { recordColumns } from '../record.js';
import { rows } from '../../connection/rows.js';
import { refusesText, timeText, toStored } from '../../connection/values.js';

/** Keeps the text of a statement far below what the server and JavaScript can hold in one piece. */
const MOST_CHARACTERS = 50_000_000;

const COLUMNS_GIVEN: readonly BatchColumn[] = [
  ['id', 'text'],
  ['name', 'text'],
  ['data', 'jsonb'],
  ['status', 'text'],
  ['priority', 'smallint'],
  ['next_run_at', 'timestamptz'],
  ['created_at', 'timestamptz'],
  ['unique_key', 'text'],
  ['limit_key', 'text'],
  ['limit_order', 'text'],
  ['retry_policy', 'jsonb'],
  ['timeout_ms', 'double precision'],
  ['trace', 'jsonb'],
  ['locked_at', 'timestamptz'],
  ['claimed_by', 'text'],
  ['lease_token', 'text'],
  ['heartbeat_interval', 'double precision'],
  ['timed', 'boolean'],
  ['start_by', 'timestamptz'],
];

const loadPast = lazily(() => import('./past.js'));

export type Identified = NewJob & { readonly id: string };

/**
 * Statements that take their keys in the same order cannot deadlock. Of two jobs with the same key, the first one asked
 * for is stored. Jobs without a key go in the order of their ids, so that the primary key grows at its end.
 */
const IN_ONE_ORDER = `unique_key is null, case when unique_key is null then id else name end collate "C",
      unique_key collate "C", at`;

/** A conflict raises no error, so the caller's transaction survives. The conflicting job is read afterwards. */
const insertStatement = ({ names }: Sql, given: string, more: string): string => `
  with given as (${given}), stored as (
    insert into ${names.jobs} (id, name, data, status, priority, next_run_at, created_at, updated_at, unique_key, limit_key, limit_order,
      retry_policy, timeout_ms, trace, locked_at, claimed_by, lease_token, heartbeat_interval, timed, start_by${more})
    select id, name, data, status, priority, next_run_at, created_at, created_at, unique_key, limit_key, limit_order,
      retry_policy, timeout_ms, trace, locked_at, claimed_by, lease_token, heartbeat_interval, timed, start_by${more}
    from given order by ${IN_ONE_ORDER}
    on conflict do nothing
    returning id
  )
  select to_json(id)::text as json from stored ${NOTIFY}`;

/** The job that holds the id or, failing that, the unique key of each job that was not stored. */
export const winnersStatement = ({ names }: Sql): string => `
  select json_build_object('at', g.at, 'job', row_to_json(w))::text as json
  from json_to_recordset($1::text::json) as g(at integer, id text, name text, unique_key text)
  cross join lateral (
    (select ${recordColumns(names)} from ${names.jobs} where id = g.id)
    union all
    (select ${recordColumns(names)} from ${names.jobs}
     where name = g.name and unique_key = g.unique_key and status in ('pending', 'processing'))
    limit 1
  ) w`;

export function storedJob(job: Identified): Readonly<Record<string, unknown>> {
  const { claim } = job;
  return {
    id: job.id,
    name: job.name,
    data: toStored(job.data),
    status: claim === undefined ? job.status : 'processing',
    priority: job.priority,
    next_run_at: timeText(job.nextRunAt),
    created_at: timeText(job.createdAt),
    unique_key: job.uniqueKey,
    limit_key: job.limitKey,
    limit_order: job.limitOrder,
    retry_policy: toStored(job.retryPolicy),
    timeout_ms: job.timeoutMs,
    trace: job.trace,
    timed: isTimed(job.id, job.createdAt),
    ...(job.startBy === undefined ? {} : { start_by: timeText(job.startBy) }),
    // By the producer's estimate of the server's time, like `created_at`.
    ...(claim === undefined
      ? {}
      : {
          locked_at: timeText(job.createdAt),
          claimed_by: claim.instance.instanceId,
          lease_token: claim.token,
          heartbeat_interval: claim.heartbeatMs,
        }),
  };
}

export function checked(job: NewJob): Identified {
  checkStorable('id', job.id);
  checkStorable('name', job.name);
  checkStorable('uniqueKey', job.uniqueKey);
  checkStorable('key', job.limitKey);
  return job.id === undefined ? { ...job, id: newId(job.createdAt.getTime()) } : (job as Identified);
}

function checkStorable(option: string, text: string | undefined): void {
  const fault = text === undefined ? null : refusesText(text);
  if (fault !== null) throw new OptionError(`enqueue: ${option} ${fault}; use another one.`);
}

export const wakingOf = (jobs: readonly Identified[]): readonly Identified[] =>
  jobs.filter(({ wake }) => wake !== undefined);

/** How to run a statement that inserts jobs. */
export interface Writing {
  readonly on: Queryable;
  /** True: the write itself wakes other instances. */
  readonly notifies: boolean;
  /** How long it waits for a key that an open transaction holds. Undefined: until that transaction ends. */
  readonly lockMs?: number;
}

/**
 * Writes jobs in as few statements as their size allows, and calls `stored` with the ids that each one stored. Each
 * statement is a transaction of its own, unless `on` is the caller's.
 */
export async function write(
  sql: Sql,
  jobs: readonly Identified[],
  { on, notifies, lockMs }: Writing,
  stored: (ids: readonly string[]) => void,
): Promise<void> {
  const waking = notifies ? wakingOf(jobs) : [];
  const past = jobs.some((job) => job.past !== undefined) ? await loadPast() : undefined;
  const added = past?.PAST_COLUMNS ?? [];
  const more = added.map(([column]) => `, ${column}`).join('');
  const batch = batchOf(
    [...COLUMNS_GIVEN, ...added],
    past === undefined
      ? jobs.map(storedJob)
      : jobs.map((job) => ({ ...storedJob(job), ...past.storedPast(job.past) })),
  );
  const given =
    lockMs === undefined ? batch.rows : `select r.* from (${lockLimitOf(lockMs)}) as l, (${batch.rows}) as r`;
  for (const [from, to] of piecesOf(batch.sizes)) {
    const message = waking.length > 0 && to === jobs.length ? wakeMessage(...waking) : '';
    const { shared, own } = batch.values(from, to);
    const values = [shared, sql.names.channel, message, ...own];
    stored(await rows<string>(on, insertStatement(sql, given, more), values));
  }
}

/** The first and last position (exclusive) of each piece that is short enough for one statement. */
export function piecesOf(sizes: readonly number[]): (readonly [from: number, to: number])[] {
  const pieces: (readonly [number, number])[] = [];
  let from = 0;
  let length = 0;
  for (const [at, size] of sizes.entries()) {
    if (at > from && length + size > MOST_CHARACTERS) {
      pieces.push([from, at]);
      from = at;
      length = 0;
    }
    length += size;
  }
  return [...pieces, [from, sizes.length]];
}
