import type { Attempt, JobRecord, LogLine } from '../../core/records/job.js';
import type { NewJob } from '../../store/port.js';
import type { Queryable } from '../connection/driver.js';
import type { Names } from '../schema/names.js';
import { fromStored, mayBeMarked, readable, timeText, toStored } from '../connection/values.js';

/** A time in milliseconds: the text of a timestamptz depends on the time zone of the session, which may be a user's. */
export const ms = (expression: string): string => `(extract(epoch from ${expression}) * 1000)::bigint`;

/** Columns that go into a record unchanged, with the names that they have there. */
const PLAIN = {
  id: 'id',
  name: 'name',
  status: 'status',
  priority: 'priority',
  claimed_by: 'claimedBy',
  lease_token: 'leaseToken',
  started_token: 'startedToken',
  heartbeat_interval: 'heartbeatInterval',
  fail_count: 'failCount',
  fail_reason: 'failReason',
  fail_kind: 'failKind',
  unique_key: 'uniqueKey',
  limit_key: 'limitKey',
  limit_order: 'limitOrder',
  followed: 'followed',
  successor_key: 'successorKey',
  timeout_ms: 'timeoutMs',
  repeat_interval: 'repeatInterval',
  timezone: 'timezone',
  missed: 'missed',
  paused: 'paused',
  schedule_rev: 'scheduleRev',
  schedule_id: 'scheduleId',
  trace: 'trace',
} as const;

const TIMES = {
  next_run_at: 'nextRunAt',
  created_at: 'createdAt',
  updated_at: 'updatedAt',
  finished_at: 'finishedAt',
  locked_at: 'lockedAt',
  last_heartbeat: 'lastHeartbeat',
  first_failed_at: 'firstFailedAt',
  cancel_requested_at: 'cancelRequestedAt',
  start_at: 'startAt',
  repeat_until: 'repeatUntil',
  scheduled_for: 'scheduledFor',
  successor_run_at: 'successorRunAt',
  start_by: 'startBy',
  debounced_at: 'debouncedAt',
} as const;

/** A job as statements return it. */
export type Row = Readonly<Record<string, unknown>>;

const time = (column: string): string => `${ms(column)} as ${column}`;

/** Columns that are set for most jobs. */
const COMMON = [
  'id, name, status, priority, fail_count, claimed_by, lease_token, heartbeat_interval',
  ...['next_run_at', 'created_at', 'updated_at', 'locked_at'].map(time),
];

/**
 * Running jobs are not written at each heartbeat: the last one is the last renewal of the holder's lease. Programs of
 * schema version 6 and older write it to the job.
 */
const lastHeartbeat = ({ instances }: Names): string =>
  `${ms(`case when status = 'processing' then greatest(locked_at, last_heartbeat,
    (select i.renewed_at from ${instances} i where i.life = split_part(lease_token, '.', 1))) end`)} as last_heartbeat`;

/** Columns that are null for most jobs. They are returned together, and only for jobs that have one of them. */
const RARE = [
  ...Object.keys(PLAIN).filter((column) => !COMMON[0]?.split(', ').includes(column)),
  ...Object.keys(TIMES).filter((column) => !COMMON.includes(time(column)) && column !== 'last_heartbeat'),
  'schedule_key',
  'retry_policy',
  'history',
];
const isTime = (column: string): boolean => Object.hasOwn(TIMES, column);
const rareRow = RARE.map((column) => (isTime(column) ? time(column) : column)).join(', ');

/** A condition: at least one of these columns is not null. */
const isRare = (columns: readonly string[]): string => `num_nonnulls(${columns.join(', ')}) > 0`;

const LEAN = [
  ...COMMON,
  `case when ${isRare(RARE)} then (select row_to_json(x) from (select ${rareRow}) x) end as rare`,
];
/** Null is a valid result and progress, and JSON has only one null. So flags say whether there is a value. */
const VALUES = [
  'data',
  'result',
  'progress',
  'logs',
  'result is not null as has_result',
  'progress is not null as has_progress',
];

/** The columns of a whole record. */
export const recordColumns = (names: Names): string => [...LEAN, lastHeartbeat(names), ...VALUES].join(', ');
/** Without payload, result, progress, logs and the last heartbeat: enough to reclaim or manage a job. */
export const LEAN_COLUMNS: string = LEAN.join(', ');

/**
 * What a claim returns for each job. It leaves out what the claim itself has just written, and includes rare columns
 * only if one of them is set. An array without names is shorter for both sides.
 */
const claimedColumns = (
  rare: readonly string[],
): string => `id, name, priority, fail_count, ${ms('next_run_at')},
    ${ms('created_at')}, data, case when ${isRare([...rare, 'result', 'progress', 'logs'])} then (select row_to_json(x)
      from (select ${[rareRow, ...VALUES.slice(1)].join(', ')}) x) end`;
export const CLAIMED: string = `json_build_array(${claimedColumns(RARE)})::text`;

/** The same for a claim by keys, for which the columns of keys are not rare. */
const KEY_COLUMNS = ['limit_key', 'limit_order'];
export const CLAIMED_BY_KEY: string = `json_build_array(${claimedColumns(
  RARE.filter((column) => !KEY_COLUMNS.includes(column)),
)}, ${KEY_COLUMNS.join(', ')})::text`;

type ClaimedRow = readonly [
  id: string,
  name: string,
  priority: number,
  failCount: number,
  nextRunAt: number,
  createdAt: number,
  data: unknown,
  rest: Row | null,
  limitKey?: string | null,
  limitOrder?: string | null,
];

/** What all jobs of one claim share: the holder, its token, and the time of the claim. */
export interface Holding {
  readonly claimedBy: string;
  readonly leaseToken: string;
  readonly heartbeatInterval: number;
  readonly at: Date;
}

/** The record of a job that was just claimed. */
export function claimedRecord(json: string, holding: Holding): JobRecord {
  const [id, name, priority, failCount, nextRunAt, createdAt, data, rest, limitKey, limitOrder] = JSON.parse(
    json,
  ) as ClaimedRow;
  const { claimedBy, leaseToken, heartbeatInterval, at } = holding;
  const marked = mayBeMarked(json);
  const record = {
    key: id,
    id,
    name,
    status: 'processing' as const,
    priority,
    claimedBy,
    leaseToken,
    heartbeatInterval,
    failCount,
    nextRunAt: new Date(nextRunAt),
    createdAt: new Date(createdAt),
    updatedAt: at,
    lockedAt: at,
    lastHeartbeat: at,
    data: marked ? fromStored(data) : data,
    bytes: json.length,
    ...(typeof limitKey === 'string' ? { limitKey } : {}),
    ...(typeof limitOrder === 'string' ? { limitOrder } : {}),
  };
  return rest === null ? record : { ...record, ...rareFields(rest, marked) };
}

/** Reads jobs on a connection or in a transaction. */
export async function records(
  on: Queryable,
  text: string,
  values: (string | number | null)[],
): Promise<JobRecord[]> {
  const answer = await on.query(text, values);
  return answer.rows.flatMap(({ json }) => (typeof json === 'string' && json !== '' ? [recordOf(json)] : []));
}

export function recordOf(json: string): JobRecord {
  return toRecord(JSON.parse(json) as Row, mayBeMarked(json));
}

export function toRecord(answer: Row, marked: boolean): JobRecord {
  const row: Row = answer['rare'] === null ? answer : { ...answer, ...(answer['rare'] as Row) };
  const data = marked ? fromStored(row['data']) : row['data'];
  const record: Record<string, unknown> = {
    key: row['id'],
    lockedAt: null,
    ...rareFields(row, marked),
    ...(data === undefined ? {} : { data }),
  };
  return record as unknown as JobRecord;
}

/** The fields of a job that the row has, except its payload. */
function rareFields(row: Row, marked: boolean): Partial<JobRecord> {
  const record: Record<string, unknown> = {};
  for (const [column, field] of PLAIN_ENTRIES) {
    const value = row[column];
    if (value !== null && value !== undefined) record[field] = value;
  }
  for (const [column, field] of TIME_ENTRIES) {
    const value = row[column];
    if (typeof value === 'number') record[field] = new Date(value);
  }
  const value = (stored: unknown): unknown => (marked ? fromStored(stored) : stored);
  if (row['schedule_key'] !== null && row['schedule_key'] !== undefined)
    record['uniqueKey'] = row['schedule_key'];
  if (row['retry_policy'] !== null && row['retry_policy'] !== undefined)
    record['retryPolicy'] = value(row['retry_policy']);
  if (row['has_result'] === true) record['result'] = value(row['result']);
  if (row['has_progress'] === true) record['progress'] = value(row['progress']);
  if (Array.isArray(row['history'])) record['history'] = row['history'].map(attemptOf);
  if (Array.isArray(row['logs'])) record['logs'] = row['logs'].map(lineOf);
  return record;
}

const PLAIN_ENTRIES = Object.entries(PLAIN);
const TIME_ENTRIES = Object.entries(TIMES);

/**
 * An attempt for the history. Its texts may contain anything, so they are made storable: they must not prevent the
 * outcome from being recorded.
 */
export function storedAttempt(entry: Attempt): unknown {
  const { startedAt, finishedAt, error, attempt, status, durationMs, instanceId } = entry;
  const times = { startedAt: timeText(startedAt), finishedAt: timeText(finishedAt) };
  const stored = { attempt, status, durationMs, instanceId: readable(instanceId), ...times };
  return error === undefined ? stored : { ...stored, error: mapTexts(error) };
}

const mapTexts = (error: object): object =>
  Object.fromEntries(
    Object.entries(error).map(([key, text]) => [key, typeof text === 'string' ? readable(text) : text]),
  );

const attemptOf = (stored: Attempt): Attempt => ({
  ...stored,
  startedAt: new Date(stored.startedAt),
  finishedAt: new Date(stored.finishedAt),
});

export const storedLine = ({ at, message, fields }: LogLine): unknown => ({
  at: at.toISOString(),
  message: readable(message),
  ...(fields === undefined ? {} : { fields: toStored(fields) }),
});

const lineOf = (stored: LogLine): LogLine => ({
  ...stored,
  at: new Date(stored.at),
  ...(stored.fields === undefined ? {} : { fields: fromStored(stored.fields) }),
});

/** The record of a job that was just stored, without reading it back. */
export function recordOfNew(job: NewJob & { readonly id: string }): JobRecord {
  const { id, name, data, status, priority, nextRunAt, createdAt, claim } = job;
  // Spelled out: copying the job without some of its fields would take longer than all the rest of a large insert.
  const record: Writable<JobRecord> = {
    key: id,
    id,
    name,
    data,
    status,
    priority,
    nextRunAt,
    createdAt,
    updatedAt: createdAt,
    lockedAt: null,
    failCount: 0,
  };
  if (job.uniqueKey !== undefined) record.uniqueKey = job.uniqueKey;
  if (job.limitKey !== undefined) record.limitKey = job.limitKey;
  if (job.limitOrder !== undefined) record.limitOrder = job.limitOrder;
  if (job.retryPolicy !== undefined) record.retryPolicy = job.retryPolicy;
  if (job.timeoutMs !== undefined) record.timeoutMs = job.timeoutMs;
  if (job.trace !== undefined) record.trace = job.trace;
  if (job.startBy !== undefined) record.startBy = job.startBy;
  if (job.past !== undefined) {
    const { expiresAt, ...past } = job.past;
    return { ...record, ...past };
  }
  if (claim === undefined) return record;
  return {
    ...record,
    status: 'processing',
    lockedAt: createdAt,
    lastHeartbeat: createdAt,
    claimedBy: claim.instance.instanceId,
    leaseToken: claim.token,
    heartbeatInterval: claim.heartbeatMs,
  };
}

type Writable<T> = { -readonly [Key in keyof T]: T[Key] };
