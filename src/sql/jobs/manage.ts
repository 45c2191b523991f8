/**
 * Transitions that people request. Each reads the job, then writes under the precondition that its status has not
 * changed.
 */
import { StoreError } from '../../core/errors.js';
import { EXPIRED, FINISHED, type JobRecord } from '../../core/records/job.js';
import { orderOf } from '../../core/records/limit-order.js';
import { pause } from '../../core/clock.js';
import type { JobChanges, JobStore, RetentionMs } from '../../store/port.js';
import { message, NOTIFY, wakeMessage } from '../cluster/notifier.js';
import type { Sql } from '../connection/connection.js';
import { isLocked, isUnique, run } from '../connection/errors.js';
import { get } from './find/find.js';
import { releaseAfter } from './enqueue/put.js';
import { recordColumns, records } from './record.js';
import { answering, rows } from '../connection/rows.js';
import { timeText, toStored } from '../connection/values.js';

type RetentionOf = (name: string) => RetentionMs;
/** A job that changes its status between read and write this many times in a row is a fault, not a race. */
const TRIES = 20;
/** How long a call waits for a job that an open transaction holds. */
const PATIENCE_MS = 2_000;

/**
 * Updates one job if its status is still the one that was read.
 *
 * $1 its id · $2 and $3 the notification · $4 and on `values`
 */
async function write(
  sql: Sql,
  job: JobRecord,
  assignments: string,
  notice: string,
  values: (string | number | null)[] = [],
): Promise<JobRecord | undefined> {
  const text = `with written as (
      update ${sql.names.jobs} set ${assignments}, updated_at = statement_timestamp()
      where id = $1::text and status = '${job.status}' returning *
    ) ${answering(recordColumns(sql.names), 'written')} ${NOTIFY}`;
  return sql.driver.transaction(async (transaction) => {
    await transaction.query(`select set_config('lock_timeout', $1::text, true)::text as json`, [
      String(PATIENCE_MS),
    ]);
    const [written] = await records(transaction, text, [job.id, sql.names.channel, notice, ...values]);
    if (written?.followed === true && FINISHED.includes(written.status)) {
      const release = `select to_json(${sql.names.table('release_successor')}($1::text, $2::text))::text as json`;
      await transaction.query(release, [written.name, written.uniqueKey ?? null]);
    }
    return written;
  });
}

/** Reads and writes until the status does not change in between. */
async function decide<T>(
  sql: Sql,
  id: string,
  step: (job: JobRecord) => Promise<T | undefined>,
): Promise<T | undefined> {
  return run('manage a job', async () => {
    for (let tries = 0; tries < TRIES; tries += 1) {
      const job = await get(sql, id);
      if (job === undefined) return undefined;
      const answer = await step(job).catch((error: unknown) => {
        throw isLocked(error) ? heldUp(id, error) : error;
      });
      if (answer !== undefined) return answer;
    }
    throw new Error(`job ${id} changed its state ${String(TRIES)} times in a row; try again.`);
  });
}

const heldUp = (id: string, cause: unknown): StoreError =>
  new StoreError(`job ${id} is held by an open transaction, probably one that completes it; try again.`, {
    cause,
    transient: true,
  });

/** A successor that waited takes its key and its time along, so that it can be retried. */
const NO_SUCCESSOR = `unique_key = coalesce(successor_key, unique_key),
  next_run_at = coalesce(successor_run_at, next_run_at), successor_key = null, successor_run_at = null`;
const CANCELLED = (
  parameter: string,
): string => `status = 'cancelled', ${NO_SUCCESSOR}, finished_at = statement_timestamp(),
  expires_at = statement_timestamp() + ${parameter}::double precision * interval '1 millisecond'`;
const ASKED = `cancel_requested_at = statement_timestamp()`;

export const cancel = (sql: Sql, id: string, retention: RetentionOf): ReturnType<JobStore['cancel']> =>
  decide(sql, id, async (job) => {
    if (FINISHED.includes(job.status)) return { outcome: 'finished' as const, job };
    if (job.status === 'processing') {
      const asked = await write(sql, job, ASKED, message('cancel'));
      return asked && { outcome: 'requested' as const, job: asked };
    }
    const cancelled = await write(sql, job, CANCELLED('$4'), '', [retention(job.name).cancelled]);
    if (cancelled !== undefined) sql.notifier.left([cancelled]);
    return cancelled && { outcome: 'cancelled' as const, job: cancelled };
  });

/** Starts a new sequence of attempts: clears what the last one left behind, and keeps the history. */
const retried = (
  parameter: string,
  order: string,
): string => `status = 'pending', next_run_at = ${parameter}::text::timestamptz,
  limit_order = coalesce(${order}::text, limit_order),
  unique_key = coalesce(successor_key, unique_key), successor_key = null, successor_run_at = null,
  followed = null, start_by = null, debounced_at = null, fail_count = 0, locked_at = null, fail_kind = null, first_failed_at = null, finished_at = null, expires_at = null,
  cancel_requested_at = null, lease_token = null, result = null, progress = null`;

/** Puts the job behind the others of its key; null if it has no place among them. */
const orderAgain = ({ limitOrder }: JobRecord, now: Date): string | null =>
  limitOrder === undefined ? null : orderOf(now.getTime(), now.getTime());

export const retry = (
  sql: Sql,
  id: string,
  now: Date,
  replacement?: { readonly data: unknown },
): ReturnType<JobStore['retry']> =>
  decide(sql, id, async (job) => {
    if (job.status === 'completed') return { outcome: 'finished' as const, job };
    if (!FINISHED.includes(job.status)) return { outcome: 'unfinished' as const, job };
    try {
      const payload = replacement === undefined ? [] : [JSON.stringify(toStored(replacement.data))];
      const fresh = retried('$4', '$5');
      const assignments = payload.length === 0 ? fresh : `${fresh}, data = $6::text::jsonb`;
      const values = [timeText(now), orderAgain(job, now), ...payload];
      const again = await write(sql, job, assignments, wakeMessage(job), values);
      return again && { outcome: 'retried' as const, job: again };
    } catch (error) {
      if (isUnique(error)) return { outcome: 'live' as const, job };
      throw error;
    }
  });

export const remove = (sql: Sql, id: string): ReturnType<JobStore['remove']> =>
  decide(sql, id, async (job) => {
    if (job.status === 'processing') return { outcome: 'running' as const, job };
    return (await removeBatch(sql, [job])) === 1 ? { outcome: 'removed' as const, job } : undefined;
  });

export const reschedule = (sql: Sql, id: string, at: Date): ReturnType<JobStore['reschedule']> =>
  decide(sql, id, async (job) => {
    if (job.status === 'processing') return { outcome: 'running' as const, job };
    if (job.status !== 'pending') return { outcome: 'finished' as const, job };
    const place = orderOf(at.getTime(), sql.clock.now());
    const moved = await write(sql, job, movedTo('$4', '$5'), wakeMessage(job), [timeText(at), place]);
    return moved && { outcome: 'rescheduled' as const, job: moved };
  });

/**
 * Moves the due time of a job. Its time limit and its place in the order of its key move along; a successor that waits
 * is not due before its release.
 */
const movedTo = (time: string, place: string): string => {
  const at = `${time}::text::timestamptz`;
  return `next_run_at = case when successor_key is null then ${at} else next_run_at end,
    successor_run_at = case when successor_key is not null then ${at} end,
    start_by = start_by + (${at} - coalesce(successor_run_at, next_run_at)),
    limit_order = case when limit_order is not null then ${place}::text end`;
};

export const update = (
  sql: Sql,
  id: string,
  changes: JobChanges,
): ReturnType<NonNullable<JobStore['update']>> =>
  decide(sql, id, async (job) => {
    if (job.status === 'processing') return { outcome: 'running' as const, job };
    if (job.status !== 'pending') return { outcome: 'finished' as const, job };
    const { data, priority, nextRunAt, limitKey } = changes;
    const values: (string | number)[] = [];
    const parameter = (value: string | number): string => `$${String(values.push(value) + 3)}`;
    const assignments = [
      ...(data === undefined
        ? []
        : [`data = ${parameter(JSON.stringify(toStored(data.value)))}::text::jsonb`]),
      ...(priority === undefined ? [] : [`priority = ${parameter(priority)}::smallint`]),
      ...(limitKey === undefined ? [] : [`limit_key = ${parameter(limitKey)}::text`]),
      ...(nextRunAt === undefined
        ? []
        : [
            movedTo(parameter(timeText(nextRunAt)), parameter(orderOf(nextRunAt.getTime(), sql.clock.now()))),
          ]),
    ];
    const updated = await write(sql, job, assignments.join(', '), wakeMessage(job), values);
    return updated && { outcome: 'updated' as const, job: updated };
  });

/** How many jobs one call cancels. */
const MOST_EXPIRED = 500;

const LATE = `status = 'pending' and start_by is not null and start_by <= statement_timestamp()`;

export async function expire(
  sql: Sql,
  retention: RetentionOf,
  ids?: readonly string[],
): Promise<readonly JobRecord[]> {
  const { jobs } = sql.names;
  const only =
    ids === undefined ? '' : 'and id = any(array(select json_array_elements_text($1::text::json)))';
  const late = `select json_build_array(id, name)::text as json from ${jobs} where ${LATE} ${only}
    order by start_by limit ${String(MOST_EXPIRED)}`;
  const text = `with free as materialized (
      select j.id, g.kept from ${jobs} j join ${given} on j.id = g.id where ${LATE} for update of j skip locked
    ), written as (
      update ${jobs} j set ${CANCELLED('f.kept')}, fail_reason = '${EXPIRED}', updated_at = statement_timestamp()
      from free f where j.id = f.id returning j.*
    ) ${answering(recordColumns(sql.names), 'written')}`;
  return run('expire', async () => {
    const found = await rows<[id: string, name: string]>(sql.driver, late, ids && [JSON.stringify(ids)]);
    if (found.length === 0) return [];
    const open = found.map(([id, name]) => ({ id, kept: retention(name).cancelled }));
    const expired = await records(sql.driver, text, [JSON.stringify(open)]);
    sql.notifier.left(expired);
    await releaseAfter(sql, expired);
    return expired;
  });
}

const given = `json_to_recordset($1::text::json) as g(id text, kept double precision, place text)`;

/**
 * Cancels pending jobs, and requests it of running ones. Skips rows that a transaction holds.
 *
 * $1 jobs · $2 and $3 the notification
 */
const cancelStatement = (jobs: string): string => `
  with free as materialized (
    select j.id, j.status, g.kept from ${jobs} j join ${given} on j.id = g.id
    where j.status = 'pending' or (j.status = 'processing' and j.cancel_requested_at is null)
    for update of j skip locked
  ), cancelled as (
    update ${jobs} j set ${CANCELLED('f.kept')}, updated_at = statement_timestamp()
    from free f where j.id = f.id and f.status = 'pending' returning j.id
  ), asked as (
    update ${jobs} j set ${ASKED}, updated_at = statement_timestamp()
    from free f where j.id = f.id and f.status = 'processing' returning j.id
  )
  select to_json(id)::text as json from cancelled union all select to_json(id)::text from asked ${NOTIFY}`;

/** The jobs of the batch that can still be cancelled. */
const liveStatement = (jobs: string): string => `
  select to_json(j.id)::text as json from ${jobs} j join ${given} on j.id = g.id
  where j.status = 'pending' or (j.status = 'processing' and j.cancel_requested_at is null)`;

const AGAIN_MS = 50;

/**
 * A claim locks a job for a moment, a user's transaction for as long as it likes. So locked jobs are tried again for 2
 * s, and then left out of the count.
 */
export async function cancelBatch(
  sql: Sql,
  jobs: readonly JobRecord[],
  retention: RetentionOf,
): Promise<number> {
  const { driver, names, clock } = sql;
  const cancelling = message('cancel');
  return run('cancel many', async () => {
    let count = 0;
    let open = jobs.map(({ id, name }) => ({ id, kept: retention(name).cancelled }));
    for (let waited = 0; waited < PATIENCE_MS; waited += AGAIN_MS) {
      const values = [JSON.stringify(open), names.channel, cancelling];
      count += (await rows(driver, cancelStatement(names.jobs), values)).length;
      const live = new Set(await rows<string>(driver, liveStatement(names.jobs), [JSON.stringify(open)]));
      open = open.filter(({ id }) => live.has(id));
      if (open.length === 0) break;
      await pause(clock, AGAIN_MS);
    }
    sql.notifier.left(jobs);
    await releaseAfter(sql, jobs);
    return count;
  });
}

/**
 * A job with a unique key may collide with a live job of the same key, so each is written by itself. The rest go in one
 * statement.
 */
export async function retryBatch(sql: Sql, jobs: readonly JobRecord[], now: Date): Promise<number> {
  const keyed = jobs.filter((job) => job.uniqueKey !== undefined);
  const plain = jobs.filter((job) => job.uniqueKey === undefined);
  const text = `with written as (
      update ${sql.names.jobs} j set ${retried('$4', 'g.place')}, updated_at = statement_timestamp()
      from ${given} where j.id = g.id and j.status in ('failed', 'cancelled') returning j.id
    ) select to_json(id)::text as json from written ${NOTIFY}`;
  const values = [
    JSON.stringify(plain.map((job) => ({ id: job.id, place: orderAgain(job, now) }))),
    sql.names.channel,
    wakeMessage(),
    timeText(now),
  ];
  let count = (await run('retry many', () => rows(sql.driver, text, values))).length;
  for (const job of keyed) if ((await retry(sql, job.id, now))?.outcome === 'retried') count += 1;
  return count;
}

export async function removeBatch(sql: Sql, jobs: readonly JobRecord[]): Promise<number> {
  const { driver, names } = sql;
  const text = `delete from ${names.jobs} j using ${given}
    where j.id = g.id and j.status <> 'processing' returning to_json(j.id)::text as json`;
  const values = [JSON.stringify(jobs.map(({ id }) => ({ id })))];
  return run('remove many', async () => {
    const removed = await rows(driver, text, values);
    sql.notifier.left(jobs);
    await releaseAfter(sql, jobs);
    return removed.length;
  });
}
