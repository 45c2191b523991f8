/** Inserts with `onExisting`, and what becomes of successors. The functions of migration 11 do the work. */
import type { JobRecord } from '../../../core/records/job.js';
import type { Inserted, UniqueKey } from '../../../store/port.js';
import { NOTIFY, wakeMessage } from '../../cluster/notifier.js';
import type { Sql } from '../../connection/connection.js';
import type { Queryable } from '../../connection/driver.js';
import { run } from '../../connection/errors.js';
import { rows } from '../../connection/rows.js';
import { mayBeMarked, timeText } from '../../connection/values.js';
import { piecesOf, storedJob, wakingOf, type Identified, type Writing } from './new-jobs.js';
import { recordColumns, toRecord, type Row } from '../record.js';

/**
 * Jobs are put in the order of their keys, so that two calls cannot deadlock; those of one key in the order of the call.
 *
 * $1 jobs · $2 and $3 the notification
 */
const putStatement = ({ names }: Sql): string => `
  select json_build_object('at', g.given -> 'at', 'outcome', p.outcome, 'job', (
      select row_to_json(w) from (select ${recordColumns(names)} from (select (p.job).*) as t) as w))::text as json
  from (
    select given from jsonb_array_elements($1::text::jsonb) as given
    order by given ->> 'name' collate "C", given ->> 'unique_key' collate "C", (given -> 'at')::integer
  ) as g
  cross join lateral ${names.table('put_job')}(g.given, g.given ->> 'kind',
    (g.given -> 'most_ms')::double precision, (g.given -> 'lock_ms')::integer) as p
  ${NOTIFY}`;

function givenOf(job: Identified, at: number, lockMs: number | undefined): Readonly<Record<string, unknown>> {
  const { onExisting } = job;
  const isDebounce = onExisting?.kind === 'debounce';
  return {
    ...storedJob(job),
    at,
    kind: onExisting?.kind,
    ...(isDebounce ? { most_ms: onExisting.maxWaitMs, debounced_at: timeText(job.createdAt) } : {}),
    ...(lockMs === undefined ? {} : { lock_ms: lockMs }),
  };
}

/** Returns an answer for each position. */
export async function put(
  sql: Sql,
  jobs: readonly Identified[],
  { on, notifies, lockMs }: Writing,
): Promise<ReadonlyMap<number, Inserted>> {
  const waking = notifies ? wakingOf(jobs) : [];
  const given = jobs.map((job, at) => JSON.stringify(givenOf(job, at, lockMs)));
  const answers = new Map<number, Inserted>();
  for (const [from, to] of piecesOf(given.map(({ length }) => length))) {
    const message = waking.length > 0 && to === jobs.length ? wakeMessage(...waking) : '';
    const values = [`[${given.slice(from, to).join(',')}]`, sql.names.channel, message];
    const { rows: found } = await on.query(putStatement(sql), values);
    for (const { json } of found) {
      if (typeof json !== 'string' || json === '') continue;
      const { at, outcome, job } = JSON.parse(json) as { at: number; outcome: Inserted['outcome']; job: Row };
      answers.set(at, { outcome, job: toRecord(job, mayBeMarked(json)) });
    }
  }
  return answers;
}

/** Releases the successors of these jobs, if they are no longer live. */
export async function releaseAfter(sql: Sql, jobs: readonly JobRecord[]): Promise<void> {
  const keys = jobs.flatMap(({ name, uniqueKey }) => (uniqueKey === undefined ? [] : [{ name, uniqueKey }]));
  if (keys.length > 0 && (await release(sql, sql.driver, keys)) > 0) sql.notifier.notify(wakeMessage());
}

/** Releases the successors that wait for these keys, and returns how many. */
export async function release(sql: Sql, on: Queryable, keys: readonly UniqueKey[]): Promise<number> {
  const text = `select to_json(${sql.names.table('release_successor')}(s.name, s.successor_key))::text as json
    from ${sql.names.jobs} s join json_to_recordset($1::text::json) as g(name text, "uniqueKey" text)
      on s.name = g.name and s.successor_key = g."uniqueKey"
    where s.status = 'pending'`;
  return (await rows<boolean>(on, text, [JSON.stringify(keys)])).filter(Boolean).length;
}

const MOST_RELEASED = 1_000;

/** Reads the successors that wait; there are few of them. */
export async function releaseSuccessors(sql: Sql): Promise<number> {
  const { jobs, table } = sql.names;
  const text = `select to_json(${table('release_successor')}(w.name, w.successor_key))::text as json from (
      select s.name, s.successor_key from ${jobs} s
      where s.successor_key is not null and s.status = 'pending' and not exists (
        select from ${jobs} l where l.name = s.name and l.unique_key = s.successor_key
          and l.unique_key is not null and l.status in ('pending', 'processing'))
      limit ${String(MOST_RELEASED)}
    ) w`;
  const released = await run('release successors', () => rows<boolean>(sql.driver, text, []));
  const count = released.filter(Boolean).length;
  if (count > 0) sql.notifier.notify(wakeMessage());
  return count;
}
