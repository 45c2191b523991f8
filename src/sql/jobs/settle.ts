import { LOG_LIMIT } from '../../core/records/job.js';
import { keptForWatchers } from '../../store/jobs/changes.js';
import type { SettleAnswer, SettledFields, Settlement } from '../../store/port.js';
import { limitedRows, settleAround } from '../connection/around-locks.js';
import { batchOf, type BatchColumn } from '../connection/batch.js';
import { requireTransaction } from '../connection/require-transaction.js';
import { NOTIFY, wakeMessage } from '../cluster/notifier.js';
import type { Sql } from '../connection/connection.js';
import type { Queryable } from '../connection/driver.js';
import { isTooMuch, refusalOf, run } from '../connection/errors.js';
import { storedJob } from './enqueue/new-jobs.js';
import { release } from './enqueue/put.js';
import { KEY } from '../schema/migrations/keyed-table.js';
import { storedAttempt, storedLine } from './record.js';
import { rows } from '../connection/rows.js';
import { readable, timeText, toStored } from '../connection/values.js';

type Field = keyof SettledFields;

interface Column {
  readonly name: string;
  readonly type: string;
  readonly stored: (value: never) => unknown;
}

const time = (value: Date): string => timeText(value);
const same = (value: unknown): unknown => value;

/** The column of each field of a settlement. */
const COLUMN_OF: Readonly<Record<Field, Column>> = {
  nextRunAt: { name: 'next_run_at', type: 'timestamptz', stored: time },
  scheduledFor: { name: 'scheduled_for', type: 'timestamptz', stored: time },
  failCount: { name: 'fail_count', type: 'integer', stored: same },
  failReason: { name: 'fail_reason', type: 'text', stored: (value: string) => readable(value) },
  failKind: { name: 'fail_kind', type: 'text', stored: same },
  firstFailedAt: { name: 'first_failed_at', type: 'timestamptz', stored: time },
  result: { name: 'result', type: 'jsonb', stored: toStored },
  progress: { name: 'progress', type: 'jsonb', stored: toStored },
  finishedAt: { name: 'finished_at', type: 'timestamptz', stored: time },
  expiresAt: { name: 'expires_at', type: 'timestamptz', stored: time },
  cancelRequestedAt: { name: 'cancel_requested_at', type: 'timestamptz', stored: same },
  startBy: { name: 'start_by', type: 'timestamptz', stored: same },
  debouncedAt: { name: 'debounced_at', type: 'timestamptz', stored: same },
};
const FIELDS = Object.keys(COLUMN_OF) as Field[];
/** For these fields null is a value; for all others it clears the field. */
const VALUES: ReadonlySet<Field> = new Set(['result', 'progress']);

/** Which fields some settlements of a batch set, and which all of them set. The statement depends on it. */
interface Shape {
  readonly some: readonly Field[];
  readonly all: ReadonlySet<Field>;
  readonly entries: boolean;
  readonly logs: boolean;
  /** Whether some settlements remove their job, and whether some keep it. */
  readonly removes: boolean;
  readonly keeps: boolean;
  readonly letters: boolean;
  /** Whether some settlements release a successor. */
  readonly releases: boolean;
  /** Whether some settlements are of jobs with a key that did not start. */
  readonly unstarted: boolean;
}

/** How a statement treats rows that other open transactions hold. */
interface Manner {
  /** Skip them: they are settled later. */
  readonly skipsLocked: boolean;
  /** The statement is a transaction of its own, and may limit its waits. A caller's transaction keeps its settings. */
  readonly alone: boolean;
}

function shapeOf(settlements: readonly Settlement[]): Shape {
  // A removed job needs no fields.
  const kept = settlements.filter(({ remove = false }) => !remove);
  const has = (field: Field) => (one: Settlement) => one.set[field] !== undefined;
  const some = FIELDS.filter((field) => kept.some(has(field)));
  return {
    some,
    all: new Set(some.filter((field) => kept.every(has(field)))),
    entries: kept.some(({ entry }) => entry !== undefined),
    logs: kept.some(({ logs = [] }) => logs.length > 0),
    removes: kept.length < settlements.length,
    keeps: kept.length > 0,
    letters: settlements.some(({ letter }) => letter !== undefined),
    releases: settlements.some(({ releases }) => releases !== undefined),
    unstarted: settlements.some((settlement) => unstartedOf(settlement) !== undefined),
  };
}

/** The key whose start counts no more, and when it was counted. */
function unstartedOf({ unstarted, lease: { limit, lockedAt } }: Settlement): object | undefined {
  if (unstarted !== true || limit === undefined || lockedAt === null) return undefined;
  return { key_name: limit.name, key: limit.key, counted: timeText(lockedAt) };
}

function storedSettlement(settlement: Settlement, shape: Shape): Readonly<Record<string, unknown>> {
  const { lease, status, set, ifRev, entry, historyLimit, logs = [], remove = false, by } = settlement;
  const row: Record<string, unknown> = { id: lease.id, token: lease.token, status, rev: ifRev };
  if (lease.token === null) row['locked'] = lease.lockedAt === null ? null : timeText(lease.lockedAt);
  if (by === 'holder') row['holder'] = true;
  if (settlement.letter !== undefined) row['letter'] = storedJob(settlement.letter);
  const { releases } = settlement;
  if (releases !== undefined)
    Object.assign(row, { release_name: releases.name, release_key: releases.uniqueKey });
  Object.assign(row, unstartedOf(settlement));
  if (remove) return { ...row, remove };
  for (const field of shape.some) {
    const value = set[field];
    if (value === undefined) continue;
    const { name, stored } = COLUMN_OF[field];
    if (!shape.all.has(field)) row[`has_${name}`] = true;
    if (value !== null || VALUES.has(field)) row[name] = (stored as (value: unknown) => unknown)(value);
  }
  if (entry !== undefined)
    Object.assign(row, { entry: storedAttempt(entry), keep: Math.max(1, historyLimit) });
  if (logs.length > 0) row['lines'] = logs.map(storedLine);
  return row;
}

const columnsOf = (shape: Shape): readonly BatchColumn[] => [
  ['id', 'text'],
  ['token', 'text'],
  ['locked', 'timestamptz(3)'],
  ['status', 'text'],
  ['rev', 'integer'],
  ['holder', 'boolean'],
  ['remove', 'boolean'],
  ...(shape.letters ? [['letter', 'jsonb'] as const] : []),
  ['entry', 'jsonb'],
  ['keep', 'integer'],
  ['lines', 'jsonb'],
  ...(shape.releases
    ? ([
        ['release_name', 'text'],
        ['release_key', 'text'],
      ] as const)
    : []),
  ...(shape.unstarted
    ? ([
        ['key_name', 'text'],
        ['key', 'text'],
        ['counted', 'timestamptz(3)'],
      ] as const)
    : []),
  ...shape.some.flatMap((field): BatchColumn[] => {
    const { name, type } = COLUMN_OF[field];
    return shape.all.has(field)
      ? [[name, type]]
      : [
          [name, type],
          [`has_${name}`, 'boolean'],
        ];
  }),
];

/** Reading JSON into a jsonb column turns JSON's null into SQL's, so a null value is written explicitly. */
const valueOf = (field: Field): string => {
  const { name } = COLUMN_OF[field];
  return VALUES.has(field) ? `coalesce(g.${name}, 'null'::jsonb)` : `g.${name}`;
};

/** A SQL expression: the list with more items at its end, cut to the last `keep`. */
export function appended(list: string, more: string, keep: string): string {
  const joined = `coalesce(${list}, '[]'::jsonb) || ${more}`;
  return `case
    when ${more} is null then ${list}
    when jsonb_array_length(${joined}) <= ${keep} then ${joined}
    else (select jsonb_agg(item order by place) from jsonb_array_elements(${joined}) with ordinality as e(item, place)
      where place > jsonb_array_length(${joined}) - ${keep})
  end`;
}

/** Most jobs run once: their first entry is simply a list of one. */
const history = `case when j.history is null and g.entry is not null then jsonb_build_array(g.entry)
    else ${appended('j.history', 'g.entry', 'g.keep')} end`;

function assignments({ some, all, entries, logs }: Shape): string {
  const fields = some.map((field) => {
    const { name } = COLUMN_OF[field];
    return all.has(field)
      ? `${name} = ${valueOf(field)}`
      : `${name} = case when g.has_${name} then ${valueOf(field)} else j.${name} end`;
  });
  return [
    'status = g.status',
    'locked_at = null, claimed_by = null, last_heartbeat = null, heartbeat_interval = null, started_token = null',
    'lease_token = case when g.holder then j.lease_token end',
    'updated_at = statement_timestamp()',
    ...fields,
    ...(entries ? [`history = ${history}`] : []),
    ...(logs ? [`logs = ${appended('j.logs', 'g.lines', String(LOG_LIMIT))}`] : []),
  ].join(',\n      ');
}

/** The lease is still the given one: by its token or, if it has none, by its time. */
const SAME_HOLDER = `(case when g.token is null then j.lease_token is null and j.locked_at is not distinct from g.locked
      else j.lease_token = g.token end)`;

/**
 * No cancel was requested, if the job goes back to pending; no successor waits, if it ends and releases none. The
 * schedule, if it is one, is still at the revision that was read.
 */
const unchanged = ({ releases }: Shape): string => `case when g.status = 'pending'
        then j.cancel_requested_at is null
        else j.followed is not true ${releases ? 'or g.release_key is not null' : ''} end
      and (g.rev is null or j.schedule_rev = g.rev)`;

/**
 * Reads of the steps before it which settlements were written, so that the key is free when the successor takes it.
 */
const releaseStep = (jobs: string, done: string): string => `released as (
    update ${jobs} s set unique_key = s.successor_key, next_run_at = s.successor_run_at, successor_key = null,
      successor_run_at = null, updated_at = statement_timestamp()
    from given g where g.release_key is not null and g.at in (${done})
      and s.name = g.release_name and s.successor_key = g.release_key and s.status = 'pending'
  )`;

/**
 * Returns one row for each settlement that it did not write: its position, and the answer. A job may be in a batch
 * twice, under a lost lease and under the one that followed it.
 */
function settleStatement(
  { names: { jobs, table } }: Sql,
  shape: Shape,
  manner: Manner,
  rowsGiven: string,
): string {
  const { skipsLocked, alone } = manner;
  /** The holder's proof, and that nothing has changed. */
  const precondition = `j.id = g.id and j.status = 'processing' and ${SAME_HOLDER} and ${unchanged(shape)}`;
  const given = `given as materialized (${alone ? limitedRows(rowsGiven) : rowsGiven})`;
  const free = `free as materialized (
    select j.id from ${jobs} j, given g where ${precondition} for update of j skip locked
  )`;
  const only = skipsLocked ? 'and j.id in (select id from free)' : '';
  const written = `written as (
    update ${jobs} j set
      ${assignments(shape)}
    from given g where ${precondition} ${shape.removes ? 'and g.remove is not true' : ''} ${only}
    returning g.at
  )`;
  const removed = `removed as (
    delete from ${jobs} j using given g where ${precondition} and g.remove ${only}
    returning g.at
  )`;
  const done = [
    ...(shape.keeps ? ['select at from written'] : []),
    ...(shape.removes ? ['select at from removed'] : []),
  ].join(' union all ');
  const steps = [
    given,
    ...(skipsLocked ? [free] : []),
    ...(shape.keeps ? [written] : []),
    ...(shape.removes ? [removed] : []),
    ...(shape.letters ? [lettersStep(jobs, done)] : []),
    ...(shape.releases ? [releaseStep(jobs, done)] : []),
    ...(shape.unstarted ? [unstartedStep(table('key_wakes'), done)] : []),
  ];
  const held = skipsLocked ? `case when ${unchanged(shape)} then 'blocked' else 'changed' end` : `'changed'`;
  return `with ${steps.join(', ')}
  select json_build_array(g.at, case
      when j.id is null then case when g.remove then 'settled' else 'lost' end
      when j.status = 'processing' then case when ${SAME_HOLDER} then ${held} else 'lost' end
      when g.holder and j.lease_token = g.token then 'settled'
      else 'lost'
    end)::text as json
  from given g left join ${jobs} j on j.id = g.id
  where g.at not in (${done})
  ${NOTIFY}`;
}

/** Tells the claims of starts that count no more: only they write to keys. */
const unstartedStep = (wakes: string, done: string): string => `unstarted as (
    insert into ${wakes} (name, key, at, adds, frees, unstarted)
    select g.key_name, ${KEY('g.key')}, '-infinity', false, true, g.counted
    from given g where g.counted is not null and g.at in (${done})
  )`;

/** Stores the dead letters of the settlements that this statement writes. */
const lettersStep = (jobs: string, done: string): string => `letters as (
    insert into ${jobs} (id, name, data, status, priority, next_run_at, created_at, updated_at, retry_policy,
      timeout_ms, trace, limit_key, limit_order, start_by)
    select l.id, l.name, l.data, 'pending', l.priority, l.next_run_at, l.created_at, l.created_at, l.retry_policy,
      l.timeout_ms, l.trace, l.limit_key, l.limit_order, l.start_by
    from given g cross join lateral jsonb_to_record(g.letter) as l(id text, name text, data jsonb, priority smallint,
      next_run_at timestamptz, created_at timestamptz, retry_policy jsonb, timeout_ms double precision, trace jsonb,
      limit_key text, limit_order text, start_by timestamptz)
    where g.letter is not null and g.at in (${done})
    on conflict do nothing
  )`;

/** Jobs that go back to pending and are due at once wake idle instances, and so do dead letters and released successors. */
function wakeFor(settlements: readonly Settlement[]): string {
  const isBack = settlements.some(
    ({ status, by, set, releases }) =>
      releases !== undefined || (status === 'pending' && (by === 'reclaimer' || set.nextRunAt === undefined)),
  );
  const letters = settlements.flatMap(({ letter }) => letter ?? []);
  if (isBack) return wakeMessage();
  return letters.length === 0 ? '' : wakeMessage(...letters);
}

async function settleOn(
  sql: Sql,
  on: Queryable,
  settlements: readonly Settlement[],
  manner: Manner & { readonly notifies: boolean },
): Promise<SettleAnswer[]> {
  const shape = shapeOf(settlements);
  const batch = batchOf(
    columnsOf(shape),
    settlements.map((settlement) => storedSettlement(settlement, shape)),
  );
  const message = manner.notifies ? wakeFor(settlements) : '';
  const answers = settlements.map((): SettleAnswer => 'settled');
  const { shared, own } = batch.values(0, settlements.length);
  const values = [shared, sql.names.channel, message, ...own];
  const text = settleStatement(sql, shape, manner, batch.rows);
  for (const [at, answer] of await rows<[number, SettleAnswer]>(on, text, values)) answers[at] = answer;
  // The statement does not see a successor that was stored while it waited for the lock of its job.
  const released = settlements.flatMap(({ releases }) => releases ?? []);
  if (released.length > 0) await release(sql, on, released);
  return answers;
}

export async function settle(sql: Sql, given: readonly Settlement[]): Promise<readonly SettleAnswer[]> {
  if (given.length === 0) return [];
  const settlements = sql.notifier.watched ? keptForWatchers(given) : given;
  return run('settle', async () => {
    try {
      // A cached plan for one row is not good for many.
      const on = settlements.length === 1 ? sql.driver.prepared : sql.driver;
      const answers = await settleAround(settlements, (skipsLocked) =>
        settleOn(sql, on, settlements, { skipsLocked, alone: true, notifies: true }),
      );
      sql.notifier.keysFreed();
      return answers;
    } catch (error) {
      if (!isTooMuch(error)) throw refusalOf('settle', error);
      // Trying again would fail in the same way forever.
      return settlements.length === 1 ? ['refused'] : await oneByOne(sql, settlements);
    }
  });
}

/** One of the settlements cannot be written; the others must not wait for it. */
async function oneByOne(sql: Sql, settlements: readonly Settlement[]): Promise<SettleAnswer[]> {
  const answers: SettleAnswer[] = [];
  for (const settlement of settlements) answers.push(...(await settle(sql, [settlement])));
  return answers;
}

/** Settles inside the caller's transaction. Errors are passed on as the driver threw them. */
export async function settleIn(
  sql: Sql,
  settlement: Settlement,
  transaction: Queryable,
): Promise<SettleAnswer> {
  await requireTransaction(sql, transaction);
  const manner = { skipsLocked: false, alone: false, notifies: sql.notifier.notifiesAtCommit };
  const settlements = sql.notifier.watched ? keptForWatchers([settlement]) : [settlement];
  const [answer] = await settleOn(sql, sql.driver.limited(transaction), settlements, manner);
  return answer === 'settled' ? 'settled' : 'lost';
}
