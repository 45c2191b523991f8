import { NEVER, scheduleId, type JobRecord } from '../../core/records/job.js';
import { OptionError } from '../../core/errors.js';
import type { JobStore, ScheduleChange } from '../../store/port.js';
import { NOTIFY, wakeMessage } from '../cluster/notifier.js';
import type { Sql } from '../connection/connection.js';
import { run } from '../connection/errors.js';
import { get } from './find/find.js';
import { recordColumns, records } from './record.js';
import { answering, rows } from '../connection/rows.js';
import { refusesText, timeText, toStored } from '../connection/values.js';

/** What a call of `schedule` may change. Only a change of these columns moves the next run. */
const TIMES = ['repeat_interval', 'timezone', 'start_at', 'repeat_until'];
const REST = ['data', 'missed', 'priority', 'limit_key', 'retry_policy', 'timeout_ms'];

const differs = (columns: readonly string[]): string =>
  columns.map((column) => `j.${column} is distinct from excluded.${column}`).join(' or ');

const FRESH = `j.status in ('completed', 'failed', 'cancelled')`;
const MOVED = `(${differs(TIMES)})`;
const RESTART = `(${FRESH} or (${MOVED} and j.status <> 'processing' and j.paused is not true))`;

const onlyIf = (condition: string, value: string, column: string): string =>
  `${column} = case when ${condition} then ${value} else j.${column} end`;

/**
 * One statement for new, changed and ended schedules; an unchanged one is not written. A run in progress keeps its
 * lease: its settlement sees the new revision, and computes the next run from it.
 *
 * $1 the schedule · $2 and $3 the notification
 */
const putStatement = ({ names }: Sql): string => `
  with written as (
    insert into ${names.jobs} as j (id, name, schedule_key, data, missed, priority, limit_key, retry_policy, timeout_ms, repeat_interval,
      timezone, start_at, repeat_until, next_run_at, scheduled_for, paused, schedule_rev, created_at, updated_at)
    select id, name, schedule_key, data, missed, priority, limit_key, retry_policy, timeout_ms, repeat_interval,
      timezone, start_at, repeat_until, first_run_at, first_run_at, false, 1, now, now
    from json_to_record($1::text::json) as g(id text, name text, schedule_key text, data jsonb, missed text,
      priority smallint, limit_key text, retry_policy jsonb, timeout_ms double precision, repeat_interval text, timezone text,
      start_at timestamptz(3), repeat_until timestamptz(3), first_run_at timestamptz(3), now timestamptz(3))
    on conflict (id) do update set
      ${[...TIMES, ...REST, 'updated_at'].map((column) => `${column} = excluded.${column}`).join(', ')},
      schedule_rev = coalesce(j.schedule_rev, 0) + 1,
      expires_at = null,
      ${[
        onlyIf(RESTART, 'excluded.next_run_at', 'next_run_at'),
        onlyIf(RESTART, 'excluded.next_run_at', 'scheduled_for'),
        onlyIf(RESTART, '0', 'fail_count'),
        onlyIf(RESTART, 'null', 'first_failed_at'),
        onlyIf(RESTART, 'null', 'fail_kind'),
        onlyIf(FRESH, `'pending'`, 'status'),
        onlyIf(FRESH, 'false', 'paused'),
        onlyIf(FRESH, 'null', 'locked_at'),
        onlyIf(FRESH, 'null', 'finished_at'),
        onlyIf(FRESH, 'null', 'cancel_requested_at'),
      ].join(',\n      ')}
    where ${FRESH} or ${differs([...TIMES, ...REST])}
    returning *
  ) ${answering(recordColumns(names), 'written')} ${NOTIFY}`;

const optionalTime = (at: Date | undefined): string | null => (at === undefined ? null : timeText(at));

function storedChange(change: ScheduleChange): object {
  return {
    id: scheduleId(change.name, change.key),
    name: change.name,
    schedule_key: change.key,
    data: toStored(change.data),
    missed: change.missed,
    priority: change.priority,
    limit_key: change.limitKey,
    retry_policy: toStored(change.retryPolicy),
    timeout_ms: change.timeoutMs,
    repeat_interval: change.cron,
    timezone: change.timezone,
    start_at: optionalTime(change.startAt),
    repeat_until: optionalTime(change.repeatUntil),
    first_run_at: timeText(change.firstRunAt),
    now: timeText(change.now),
  };
}

export async function putSchedule(sql: Sql, change: ScheduleChange): Promise<JobRecord> {
  for (const [option, text] of Object.entries({
    name: change.name,
    uniqueKey: change.key,
    key: change.limitKey ?? '',
  })) {
    const fault = refusesText(text);
    if (fault !== null) throw new OptionError(`schedule: ${option} ${fault}; use another one.`);
  }
  const values = [JSON.stringify(storedChange(change)), sql.names.channel, wakeMessage()];
  return run(
    'schedule',
    async () => {
      for (;;) {
        const [written] = await records(sql.driver, putStatement(sql), values);
        // If nothing was written, the schedule is already as requested. If it was removed meanwhile, put it again.
        const job = written ?? (await schedule(sql, change.name, change.key));
        if (job !== undefined) return job;
      }
    },
    true,
  );
}

export async function schedules({ driver, names }: Sql, name?: string): Promise<readonly JobRecord[]> {
  const text = answering(
    recordColumns(names),
    `(select * from ${names.jobs} where repeat_interval is not null and ($1::text is null or name = $1::text)
      order by name, schedule_key) s`,
  );
  return run('list schedules', () => records(driver, text, [name ?? null]));
}

export const schedule = (sql: Sql, name: string, key: string): Promise<JobRecord | undefined> =>
  get(sql, scheduleId(name, key));

/** Also while it runs: the settlement then finds no row, and there is no next run. */
export async function removeSchedule({ driver, names }: Sql, name: string, key: string): Promise<boolean> {
  const text = `delete from ${names.jobs} where id = $1::text returning to_json(id)::text as json`;
  const gone = await run('remove a schedule', () => rows(driver, text, [scheduleId(name, key)]));
  return gone.length === 1;
}

/** $1 its id · $2 and $3 the notification · $4 and on `values` */
async function change(
  { driver, names }: Sql,
  id: string,
  assignments: string,
  condition: string,
  values: string[],
): Promise<JobRecord | undefined> {
  const text = `with written as (
      update ${names.jobs} set ${assignments}, updated_at = statement_timestamp()
      where id = $1::text and ${condition} returning *
    ) ${answering(recordColumns(names), 'written')} ${NOTIFY}`;
  const found = await run('change a schedule', () =>
    records(driver, text, [id, names.channel, wakeMessage(), ...values]),
  );
  return found[0];
}

export async function pauseSchedule(
  sql: Sql,
  name: string,
  key: string,
  paused: boolean,
  nextRunAt: Date,
): Promise<JobRecord | undefined> {
  const at = `case when status = 'pending' then $4::text::timestamptz else`;
  const assignments = `paused = ${String(paused)}, schedule_rev = coalesce(schedule_rev, 0) + 1,
    next_run_at = ${at} next_run_at end, scheduled_for = ${at} scheduled_for end`;
  const condition = `status in ('pending', 'processing') and paused is not ${String(paused)}`;
  const changed = await change(sql, scheduleId(name, key), assignments, condition, [
    timeText(paused ? NEVER : nextRunAt),
  ]);
  return changed ?? schedule(sql, name, key);
}

export const runScheduleNow = async (
  sql: Sql,
  name: string,
  key: string,
  now: Date,
): ReturnType<JobStore['runScheduleNow']> => {
  // An overdue run keeps its time: moving it to now would lose the runs missed before.
  const assignments = `next_run_at = least(next_run_at, $4::text::timestamptz),
    scheduled_for = case when next_run_at > $4::text::timestamptz then $4::text::timestamptz else scheduled_for end`;
  const due = await change(sql, scheduleId(name, key), assignments, `status = 'pending'`, [timeText(now)]);
  if (due !== undefined) return { outcome: 'due', job: due };
  const job = await schedule(sql, name, key);
  return job?.status === 'processing' ? { outcome: 'running', job } : undefined;
};
