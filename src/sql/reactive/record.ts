import type { Attempt } from '../../core/records/job.js';
import type { TaskRecord } from '../../core/records/task.js';
import type { Queryable } from '../connection/driver.js';
import { ms } from '../jobs/record.js';
import { parseExact } from '../tables/exact.js';
import { RUNNING } from './place.js';
import type { Column, Shape } from '../tables/shape.js';

/** Identifies a task: its name, and the key of its row. */
export interface TaskKey {
  readonly task: string;
  readonly key: string;
}

export const leaseKey = (lease: { readonly key: unknown }): TaskKey => lease.key as TaskKey;

const PLAIN = {
  status: 'status',
  attempts: 'attempts',
  limit_key: 'limitKey',
  last_error: 'lastError',
  claimed_by: 'claimedBy',
  lease_token: 'leaseToken',
  started_token: 'startedToken',
  fail_kind: 'failKind',
  trace: 'trace',
} as const;

const TIMES = {
  scheduled_at: 'scheduledAt',
  initial_scheduled_at: 'initialScheduledAt',
  first_error_at: 'firstErrorAt',
  last_finalized_at: 'lastFinalizedAt',
  created_at: 'createdAt',
  updated_at: 'updatedAt',
  locked_at: 'lockedAt',
} as const;

const LEAN = [
  'task',
  'key',
  'source_doc_id',
  'last_success',
  'execution_history',
  ...Object.keys(PLAIN),
  ...Object.keys(TIMES).map((column) => `${ms(column)} as ${column}`),
].join(', ');

/** The columns of a whole record. The lean ones leave out the snapshot, which reclaiming a task does not need. */
export const COLUMNS: string = `${LEAN}, last_observed_values`;
/** The same in a `returning` clause. */
export const RETURNED: string = `(select row_to_json(r)::text from (select ${COLUMNS}) r) as json`;
export const LEAN_COLUMNS: string = LEAN;

export const IS_RUNNING: string = `status in ${RUNNING}`;

/** The table of a task, if it is known: tells which texts are times. */
export type ShapeOf = (task: string) => Shape | undefined;
const noShape: ShapeOf = () => undefined;

const isTime = ({ type, typeSchema }: Column): boolean =>
  typeSchema === 'pg_catalog' && type === 'timestamptz';

const timeOf = (value: unknown): unknown => {
  const at = typeof value === 'string' ? new Date(value) : undefined;
  // `infinity` is not a date.
  return at === undefined || Number.isNaN(at.getTime()) ? value : at;
};

/** Values of timestamptz columns become dates; everything else stays as in JSON. */
export function revived(values: unknown, shape: Shape | undefined): unknown {
  if (shape === undefined || typeof values !== 'object' || values === null) return values;
  const times = new Set(shape.columns.filter(isTime).map(({ name }) => name));
  if (times.size === 0) return values;
  return Object.fromEntries(
    Object.entries(values).map(([name, value]) => [
      name,
      times.has(name) ? timeOf(value) : (value as unknown),
    ]),
  );
}

const attemptOf = (stored: Attempt): Attempt => ({
  ...stored,
  startedAt: new Date(stored.startedAt),
  finishedAt: new Date(stored.finishedAt),
});

export function toRecord(json: string, shapeOf: ShapeOf): TaskRecord {
  const row = parseExact(json) as Record<string, unknown>;
  const { task, key } = row as unknown as TaskKey;
  // A time in a key stays a text: as a date it would lose its microseconds, and match no row.
  const id = row['source_doc_id'];
  const record: Record<string, unknown> = {
    key: { task, key } satisfies TaskKey,
    id: `${task}/${key}`,
    name: task,
    _id: { task, id },
    task,
    sourceDocId: id,
    lockedAt: null,
  };
  for (const [column, field] of Object.entries(PLAIN)) {
    const value = row[column];
    if (value !== null && value !== undefined) record[field] = value;
  }
  for (const [column, field] of Object.entries(TIMES)) {
    const value = row[column];
    if (typeof value === 'number') record[field] = new Date(value);
  }
  const success = row['last_success'] as { at: string; durationMs: number } | null;
  if (success !== null) record['lastSuccess'] = { ...success, at: new Date(success.at) };
  if (Array.isArray(row['execution_history']))
    record['executionHistory'] = row['execution_history'].map(attemptOf);
  if (row['last_observed_values'] !== undefined && row['last_observed_values'] !== null)
    record['lastObservedValues'] = revived(row['last_observed_values'], shapeOf(task));
  return record as unknown as TaskRecord;
}

export async function records(
  on: Queryable,
  text: string,
  values: (string | number | null)[],
  shapeOf: ShapeOf = noShape,
): Promise<TaskRecord[]> {
  const { rows } = await on.query(text, values);
  return rows.map(({ json }) => toRecord(json as string, shapeOf));
}
