/** What happens to a job between claim and settlement. */
import { failedRunId, LOG_LIMIT, type JobRecord } from '../../core/records/job.js';
import type { FailedRun, Instance, Lease, Note, StrayQuery } from '../../store/port.js';
import type { Sql } from '../connection/connection.js';
import type { Queryable } from '../connection/driver.js';
import { run } from '../connection/errors.js';
import { recordColumns, LEAN_COLUMNS, records, storedAttempt, storedLine } from './record.js';
import { answering, rows } from '../connection/rows.js';
import { appended } from './settle.js';
import { readable, timeText, toStored } from '../connection/values.js';

/** A parameter as a list of texts. */
const texts = (parameter: string): string =>
  `array(select json_array_elements_text(${parameter}::text::json))`;

const idsOf = (leases: readonly Lease[]): string => JSON.stringify(leases.map((lease) => lease.id));

export async function held(
  { driver, names }: Sql,
  leases: readonly Lease[],
  on: Queryable = driver,
): Promise<readonly (JobRecord | undefined)[]> {
  const text = answering(
    recordColumns(names),
    `${names.jobs} where id = any(${texts('$1')}) and status = 'processing'`,
  );
  const found = await records(on, text, [idsOf(leases)]);
  const byId = new Map(found.map((job) => [job.id, job]));
  return leases.map((lease) => {
    const job = byId.get(lease.id);
    return job !== undefined && (job.leaseToken ?? null) === lease.token ? job : undefined;
  });
}

export async function settledUnder({ driver, names }: Sql, lease: Lease): Promise<boolean> {
  const text = `select to_json(status <> 'processing' and lease_token is not distinct from $2::text)::text as json
    from ${names.jobs} where id = $1::text`;
  const [settled = true] = await run('read a settled job', () =>
    rows<boolean>(driver, text, [lease.id, lease.token]),
  );
  return settled;
}

export async function begin({ driver, names }: Sql, lease: Lease): Promise<'begun' | 'lost'> {
  const text = `update ${names.jobs} set started_token = $2::text
    where id = $1::text and status = 'processing' and lease_token = $2::text returning to_json(id)::text as json`;
  const begun = await run('begin', () => rows(driver, text, [lease.id, lease.token]));
  return begun.length === 1 ? 'begun' : 'lost';
}

/** Best effort, so it skips rows that a transaction holds: it must never wait for one. */
export async function note({ driver, names: { jobs } }: Sql, notes: readonly Note[]): Promise<void> {
  const given = notes.map(({ lease, progress, logs = [] }) => ({
    id: lease.id,
    token: lease.token,
    ...(progress === undefined ? {} : { noted: true, progress: toStored(progress.value) }),
    ...(logs.length === 0 ? {} : { lines: logs.map(storedLine) }),
  }));
  const text = `
    with given as materialized (
      select * from json_to_recordset($1::text::json)
        as g(id text, token text, noted boolean, progress jsonb, lines jsonb)
    ), free as materialized (
      select j.id from ${jobs} j, given g
      where j.id = g.id and j.status = 'processing' and j.lease_token = g.token
      for update of j skip locked
    )
    update ${jobs} j set
      progress = case when g.noted then coalesce(g.progress, 'null'::jsonb) else j.progress end,
      logs = ${appended('j.logs', 'g.lines', String(LOG_LIMIT))}
    from given g where j.id = g.id and j.id in (select id from free)`;
  await run('note', () => driver.query(text, [JSON.stringify(given)]));
}

/** Tokens begin with the life that made them. */
const OF_LIFE = `claimed_by = $1::text and status = 'processing' and starts_with(lease_token, $2::text)`;

const lifeValues = (instance: Instance): [string, string] => [instance.instanceId, `${instance.life}.`];

export async function cancelRequests(
  { driver, names }: Sql,
  leases: readonly Lease[],
): Promise<readonly Lease[]> {
  const text = `select to_json(id)::text as json from ${names.jobs}
    where id = any(${texts('$1')}) and cancel_requested_at is not null`;
  const asked = new Set(await run('read cancel requests', () => rows<string>(driver, text, [idsOf(leases)])));
  return leases.filter((lease) => asked.has(lease.id));
}

export async function heldBy(
  { driver, names }: Sql,
  instance: Instance,
  limit: number,
): Promise<readonly JobRecord[]> {
  const text = answering(LEAN_COLUMNS, `${names.jobs} where ${OF_LIFE} limit $3::integer`);
  return run('read a dead instance', () => records(driver, text, [...lifeValues(instance), limit]));
}

/**
 * Jobs under no valid lease: a claim that landed after its owner's death, or work that an older version left behind.
 */
export async function strays({ driver, names }: Sql, query: StrayQuery): Promise<readonly JobRecord[]> {
  const { lives, olderThanMs, legacyAfterMs, limit } = query;
  const before = (time: string, milliseconds: string): string =>
    `coalesce(${time}, '-infinity') < statement_timestamp() - ${milliseconds} * interval '1 millisecond'`;
  const patience = `greatest($3::double precision, 3 * heartbeat_interval)`;
  const text = answering(
    LEAN_COLUMNS,
    `${names.jobs} where status = 'processing' and case
      when lease_token is null then ${before('greatest(locked_at, last_heartbeat)', patience)}
      else split_part(lease_token, '.', 1) <> all(${texts('$1')}) and ${before('locked_at', '$2::double precision')}
    end limit $4::integer`,
  );
  const values = [JSON.stringify(lives.map(({ life }) => life)), olderThanMs, legacyAfterMs, limit];
  return run('look for strays', () => records(driver, text, values));
}

/** Keeps a copy of a run that used up its attempts. The server copies the payload. */
export async function insertFailedRun(
  { driver, names: { jobs } }: Sql,
  of: JobRecord,
  failure: FailedRun,
): Promise<void> {
  const history = [
    ...(of.history ?? []).map(storedAttempt),
    ...(failure.entry === undefined ? [] : [storedAttempt(failure.entry)]),
  ].slice(-Math.max(1, failure.historyLimit));
  const text = `
    insert into ${jobs} (id, name, data, status, priority, next_run_at, created_at, updated_at, schedule_id, limit_key,
      retry_policy, timeout_ms, fail_count, fail_reason, fail_kind, scheduled_for, finished_at, expires_at, history)
    select $1::text, name, data, 'failed', priority, $2::text::timestamptz, $3::text::timestamptz,
      $3::text::timestamptz, id, limit_key, retry_policy, timeout_ms, $4::integer, $5::text, $6::text, $2::text::timestamptz,
      $3::text::timestamptz, $7::text::timestamptz, $8::text::jsonb
    from ${jobs} where id = $9::text
    on conflict do nothing`;
  const values = [
    failedRunId(of.id, failure.scheduledFor),
    timeText(failure.scheduledFor),
    timeText(failure.finishedAt),
    failure.failCount,
    readable(failure.failReason),
    failure.failKind,
    failure.expiresAt === null ? null : timeText(failure.expiresAt),
    JSON.stringify(history),
    of.id,
  ];
  await run('save a failed run', () => driver.query(text, values));
}
