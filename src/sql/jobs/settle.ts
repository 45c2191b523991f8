import { LOG_LIMIT } from '../../core/records/job.js';
import type { SettleAnswer, SettledFields, Settlement } from '../../store/port.js';
import { limitedRows, settleAround } from '../connection/around-locks.js';
import { batchOf, type BatchColumn } from '../connection/batch.js';
import { requireTransaction } from '../connection/require-transaction.js';
import { NOTIFY, wakeMessage } from '../cluster/notifier.js';
import type { Sql } from '../connection/connection.js';
import type { Queryable } from '../connection/driver.js';
import { isTooMuch, refusalOf, run } from '../connection/errors.js';
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
  };
}

function storedSettlement(settlement: Settlement, shape: Shape): Readonly<Record<string, unknown>> {
  const { lease, status, set, ifRev, entry, historyLimit, logs = [], remove = false, by } = settlement;
  const row: Record<string, unknown> = { id: lease.id, token: lease.token, status, rev: ifRev };
  if (lease.token === null) row['locked'] = lease.lockedAt === null ? null : timeText(lease.lockedAt);
  if (by === 'holder') row['holder'] = true;
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
  ['entry', 'jsonb'],
  ['keep', 'integer'],
  ['lines', 'jsonb'],
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
 * No cancel was requested, if the job goes back to pending. The schedule, if it is one, is still at the revision that
 * was read.
 */
const UNCHANGED = `(g.status <> 'pending' or j.cancel_requested_at is null)
      and (g.rev is null or j.schedule_rev = g.rev)`;

/** The holder's proof, and that nothing has changed. */
const PRECONDITION = `j.id = g.id and j.status = 'processing' and ${SAME_HOLDER} and ${UNCHANGED}`;

/**
 * Returns one row for each settlement that it did not write: its position, and the answer. A job may be in a batch
 * twice, under a lost lease and under the one that followed it.
 */
function settleStatement({ names: { jobs } }: Sql, shape: Shape, manner: Manner, rowsGiven: string): string {
  const { skipsLocked, alone } = manner;
  const given = `given as materialized (${alone ? limitedRows(rowsGiven) : rowsGiven})`;
  const free = `free as materialized (
    select j.id from ${jobs} j, given g where ${PRECONDITION} for update of j skip locked
  )`;
  const only = skipsLocked ? 'and j.id in (select id from free)' : '';
  const written = `written as (
    update ${jobs} j set
      ${assignments(shape)}
    from given g where ${PRECONDITION} ${shape.removes ? 'and g.remove is not true' : ''} ${only}
    returning g.at
  )`;
  const removed = `removed as (
    delete from ${jobs} j using given g where ${PRECONDITION} and g.remove ${only}
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
  ];
  const held = skipsLocked ? `case when ${UNCHANGED} then 'blocked' else 'changed' end` : `'changed'`;
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

/** Jobs that go back to pending and are due at once wake idle instances. */
const wakes = (settlements: readonly Settlement[]): boolean =>
  settlements.some(
    ({ status, by, set }) => status === 'pending' && (by === 'reclaimer' || set.nextRunAt === undefined),
  );

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
  const message = manner.notifies && wakes(settlements) ? wakeMessage() : '';
  const answers = settlements.map((): SettleAnswer => 'settled');
  const { shared, own } = batch.values(0, settlements.length);
  const values = [shared, sql.names.channel, message, ...own];
  const text = settleStatement(sql, shape, manner, batch.rows);
  for (const [at, answer] of await rows<[number, SettleAnswer]>(on, text, values)) answers[at] = answer;
  return answers;
}

export async function settle(sql: Sql, settlements: readonly Settlement[]): Promise<readonly SettleAnswer[]> {
  return run('settle', async () => {
    try {
      // A cached plan for one row is not good for many.
      const on = settlements.length === 1 ? sql.driver.prepared : sql.driver;
      return await settleAround(settlements, (skipsLocked) =>
        settleOn(sql, on, settlements, { skipsLocked, alone: true, notifies: true }),
      );
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
  const [answer] = await settleOn(sql, sql.driver.limited(transaction), [settlement], manner);
  return answer === 'settled' ? 'settled' : 'lost';
}
