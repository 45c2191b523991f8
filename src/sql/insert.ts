import { OptionError, StoreError } from '../core/errors.js';
import type { JobRecord } from '../core/job.js';
import type { Inserted, NewJob } from '../store/port.js';
import { batchOf, type BatchColumn } from './batch.js';
import { RING, wakeMessage } from './bell.js';
import type { Sql } from './connection.js';
import type { Queryable } from './driver.js';
import { run } from './errors.js';
import { COLUMNS, newId, recordOfNew, toRecord, type Row } from './record.js';
import { rows } from './rows.js';
import { mayBeMarked, refusesText, timeText, toStored } from './values.js';

/** A key that was taken and is free again a moment later, this often in a row, is a fault and not a race. */
const TRIES = 50;
/** A statement's text stays far below what the server and JavaScript can hold in one piece. */
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
  ['retry_policy', 'jsonb'],
  ['timeout_ms', 'double precision'],
  ['trace', 'jsonb'],
  ['locked_at', 'timestamptz'],
  ['claimed_by', 'text'],
  ['lease_token', 'text'],
  ['heartbeat_interval', 'double precision'],
];

type Identified = NewJob & { readonly id: string };

/** Conflicts raise no error, so that a caller's transaction lives on; whoever is in the way is read afterwards. */
const insertStatement = ({ names }: Sql, given: string): string => `
  with given as (${given}), stored as (
    insert into ${names.jobs} (id, name, data, status, priority, next_run_at, created_at, updated_at, unique_key,
      retry_policy, timeout_ms, trace, locked_at, last_heartbeat, claimed_by, lease_token, heartbeat_interval)
    select id, name, data, status, priority, next_run_at, created_at, created_at, unique_key,
      retry_policy, timeout_ms, trace, locked_at, locked_at, claimed_by, lease_token, heartbeat_interval
    from given order by at
    on conflict do nothing
    returning id
  )
  select to_json(id)::text as json from stored ${RING}`;

/** Who holds the id, or else the unique key, of each job that was not stored. */
export const winnersStatement = ({ names }: Sql): string => `
  select json_build_object('at', g.at, 'job', row_to_json(w))::text as json
  from json_to_recordset($1::text::json) as g(at integer, id text, name text, unique_key text)
  cross join lateral (
    (select ${COLUMNS} from ${names.jobs} where id = g.id)
    union all
    (select ${COLUMNS} from ${names.jobs}
     where name = g.name and unique_key = g.unique_key and status in ('pending', 'processing'))
    limit 1
  ) w`;

function storedJob(job: Identified): Readonly<Record<string, unknown>> {
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
    retry_policy: toStored(job.retryPolicy),
    timeout_ms: job.timeoutMs,
    trace: job.trace,
    // By the producer's estimate of the server's time, as `created_at` is.
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

function checked(job: NewJob, now: number): Identified {
  checkStorable('id', job.id);
  checkStorable('name', job.name);
  checkStorable('uniqueKey', job.uniqueKey);
  return job.id === undefined ? { ...job, id: newId(now) } : (job as Identified);
}

function checkStorable(option: string, text: string | undefined): void {
  const fault = text === undefined ? null : refusesText(text);
  if (fault !== null) throw new OptionError(`enqueue: ${option} ${fault}; use another one.`);
}

export const insert = (sql: Sql, jobs: readonly NewJob[]): Promise<readonly Inserted[]> =>
  run('enqueue', () => insertOn(sql, sql.driver.often, jobs, true), true);

/** In the caller's transaction. Its errors are the driver's own, by which the caller knows what to do. */
export const insertIn = (
  sql: Sql,
  jobs: readonly NewJob[],
  transaction: Queryable,
): Promise<readonly Inserted[]> => {
  if (jobs.some((job) => job.wake === true)) sql.bell.afterCommit(transaction);
  return insertOn(sql, transaction, jobs, sql.bell.ringsAtCommit);
};

async function insertOn(
  sql: Sql,
  on: Queryable,
  jobs: readonly NewJob[],
  ring: boolean,
): Promise<readonly Inserted[]> {
  const asked = jobs.map((job) => checked(job, sql.clock.now()));
  const answers = new Array<Inserted>(jobs.length);
  let open = asked.map((_job, at) => at);
  for (let tries = 0; open.length > 0 && tries < TRIES; tries += 1) {
    const stored = await store(sql, on, asked, open, ring);
    const refused: number[] = [];
    for (const at of open) {
      const job = asked[at] as Identified;
      // Twins in one call have different ids, unless the caller gave them the same one.
      if (stored.delete(job.id)) answers[at] = { job: recordOfNew(job), outcome: 'created' };
      else refused.push(at);
    }
    open = await readWinners(sql, on, asked, answers, refused);
  }
  if (open.length === 0) return answers;
  throw new StoreError('enqueue: a unique key was taken and free again many times in a row; try again.', {
    transient: true,
    outcomeUnknown: true,
  });
}

async function store(
  sql: Sql,
  on: Queryable,
  asked: readonly Identified[],
  open: readonly number[],
  ring: boolean,
): Promise<Set<string>> {
  const stored = new Set<string>();
  const waking = ring ? open.map((at) => asked[at]).find((job) => job?.wake === true) : undefined;
  const batch = batchOf(
    COLUMNS_GIVEN,
    open.map((at) => storedJob(asked[at] as Identified)),
  );
  for (const [from, to] of piecesOf(batch.sizes)) {
    const message = waking !== undefined && to === open.length ? wakeMessage(waking) : '';
    const { shared, own } = batch.values(from, to);
    const values = [shared, sql.names.channel, message, ...own];
    for (const id of await rows<string>(on, insertStatement(sql, batch.rows), values)) stored.add(id);
  }
  return stored;
}

/** Where each piece begins and ends, so that it is short enough for one statement. */
function piecesOf(sizes: readonly number[]): (readonly [from: number, to: number])[] {
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

/** Fills in the answers of refused jobs; those whose winner is gone already are to be tried again. */
async function readWinners(
  sql: Sql,
  on: Queryable,
  asked: readonly Identified[],
  answers: Inserted[],
  refused: readonly number[],
): Promise<number[]> {
  if (refused.length === 0) return [];
  const given = refused.map((at) => {
    const { id, name, uniqueKey } = asked[at] as Identified;
    return { at, id, name, unique_key: uniqueKey };
  });
  const answer = await on.query(winnersStatement(sql), [JSON.stringify(given)]);
  for (const { json } of answer.rows) {
    const { at, job } = JSON.parse(json as string) as { at: number; job: Row };
    const winner = toRecord(job, mayBeMarked(json as string));
    answers[at] = { job: winner, outcome: outcomeOf(asked[at] as Identified, winner) };
  }
  return refused.filter((at) => answers[at] === undefined);
}

/** An id that nobody gave can only have been stored by an earlier try of the same call. */
const outcomeOf = (job: Identified, winner: JobRecord): Inserted['outcome'] =>
  job.ownId !== true && winner.id === job.id ? 'created' : 'existing';
