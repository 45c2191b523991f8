import type { SettleAnswer } from '../../store/port.js';
import type { TaskSettlement } from '../../store/reactive/reactive.js';
import { KEY, keyedTasks } from '../schema/migrations/keyed-table.js';
import { limitedRows, settleAround } from '../connection/around-locks.js';
import { requireTransaction } from '../connection/require-transaction.js';
import type { Sql } from '../connection/connection.js';
import type { Queryable } from '../connection/driver.js';
import { isTooMuch, refusalOf, run } from '../connection/errors.js';
import { storedAttempt } from '../jobs/record.js';
import { rows } from '../connection/rows.js';
import { appended } from '../jobs/settle.js';
import { readable, timeText } from '../connection/values.js';
import { namesOf, NOW, RUNNING } from './place.js';
import { leaseKey } from './record.js';

/** The key whose start counts no more, and when it was counted. */
function unstartedOf({ unstarted, lease: { limit, lockedAt } }: TaskSettlement): object {
  if (unstarted !== true || limit === undefined || lockedAt === null) return {};
  return { limit_key: limit.key, counted: timeText(lockedAt) };
}

/** Tells the claims of starts that count no more: only they write to keys. */
const unstartedStep = ({ names }: Sql): string => `, unstarted as (
      insert into ${keyedTasks(names).wakes} (name, key, at, adds, frees, unstarted)
      select g.task, ${KEY('g.limit_key')}, '-infinity', false, true, g.counted
      from given g where g.counted is not null and g.at in (select at from written)
    )`;

function storedSettlement(one: TaskSettlement, at: number): object {
  const { lease, failure, success, entry } = one;
  return {
    at,
    ...leaseKey(lease),
    token: lease.token,
    status: one.status,
    scheduled_at: one.scheduledAt === undefined ? null : timeText(one.scheduledAt),
    take_back: one.takeBack,
    deferred: one.deferred,
    skipped: one.skipped,
    reset: one.resetRetries,
    failed: failure !== undefined,
    message: failure === undefined ? null : readable(failure.message),
    fail_kind: failure?.kind,
    first_error_at: failure === undefined ? null : timeText(failure.firstErrorAt),
    success: success === undefined ? null : { at: success.at.toISOString(), durationMs: success.durationMs },
    entry: entry === undefined ? null : storedAttempt(entry),
    keep: Math.max(1, one.historyLimit),
    holder: one.by === 'holder',
    ...unstartedOf(one),
  };
}

const DIRTY = `k.status = 'processing_dirty'`;
/**
 * If its row changed while the task ran, it runs again, whatever the outcome. A skipped run also runs again if the row
 * was looked at meanwhile and was as planned: the reason for the skip has passed.
 */
const AGAIN = `(${DIRTY} or (g.skipped and k.touched))`;
const ATTEMPTS = `(case when g.take_back then greatest(0, k.attempts - 1) else k.attempts end)`;

const ASSIGNMENTS = `
      -- A change while the task ran moves it to its new key now.
      limit_key = coalesce(k.next_limit_key, k.limit_key), next_limit_key = null,
      status = case when ${AGAIN} then 'pending' else g.status end,
      locked_at = null, claimed_by = null, started_token = null, touched = false, overtaken = false,
      lease_token = case when g.holder then k.lease_token end,
      attempts = case when ${AGAIN} and (g.reset or g.success is not null) then 0 else ${ATTEMPTS} end,
      -- A change does not shorten a deferral, nor the delay of a sequence of attempts that it does not end.
      scheduled_at = case
        when g.scheduled_at is null then k.scheduled_at
        when not ${AGAIN} then g.scheduled_at
        when g.deferred or not g.reset then greatest(k.scheduled_at, g.scheduled_at)
        else k.scheduled_at end,
      deferred_until = case when g.deferred then g.scheduled_at else k.deferred_until end,
      initial_scheduled_at = case when g.scheduled_at is null or g.deferred or ${AGAIN} then k.initial_scheduled_at
        else g.scheduled_at end,
      matched = k.matched and (not g.skipped or ${AGAIN}),
      last_finalized_at = case when g.status = 'pending' then k.last_finalized_at else ${NOW} end,
      last_error = case when g.failed then g.message when g.success is not null then null else k.last_error end,
      fail_kind = case when g.failed then g.fail_kind when g.success is not null then null else k.fail_kind end,
      first_error_at = case
        when g.failed then case when ${AGAIN} and g.reset then null else g.first_error_at end
        when g.success is not null then null
        else k.first_error_at end,
      last_success = coalesce(g.success, k.last_success),
      execution_history = ${appended('k.execution_history', 'g.entry', 'g.keep')}`;

const GIVEN = `
      select * from json_to_recordset($1::text::json) as g(at integer, task text, key text, token text, status text,
        scheduled_at timestamptz(3), take_back boolean, deferred boolean, skipped boolean, reset boolean, failed boolean,
        message text, fail_kind text, first_error_at timestamptz(3), success jsonb, entry jsonb, keep integer, holder boolean,
        limit_key text, counted timestamptz(3))`;

/**
 * Settlements are written in the order of their keys, so that two statements cannot deadlock. Returns one row for each
 * settlement that it did not write: its position, and the answer.
 */
export function settleStatement(sql: Sql, skipLocked: boolean, alone: boolean, hasUnstarted = false): string {
  const { tasks } = namesOf(sql);
  return `with given as materialized (${alone ? limitedRows(GIVEN) : GIVEN}
    ), held as materialized (
      select k.task, k.key from ${tasks} k join given g on g.task = k.task and g.key = k.key
      where k.status in ${RUNNING} and k.lease_token = g.token
      order by k.task, k.key for update of k ${skipLocked ? 'skip locked' : ''}
    ), written as (
      update ${tasks} k set ${ASSIGNMENTS}
      from given g join held h on h.task = g.task and h.key = g.key
      where k.task = g.task and k.key = g.key and k.status in ${RUNNING} and k.lease_token = g.token
      returning g.at
    )${hasUnstarted ? unstartedStep(sql) : ''}
    select json_build_array(g.at, case
        when k.lease_token is distinct from g.token then 'lost'
        when k.status in ${RUNNING} then ${skipLocked ? `'blocked'` : `'changed'`}
        when g.holder then 'settled'
        else 'lost' end)::text as json
    from given g left join ${tasks} k on k.task = g.task and k.key = g.key
    where g.at not in (select at from written)`;
}

async function settleOn(
  sql: Sql,
  on: Queryable,
  settlements: readonly TaskSettlement[],
  skipLocked: boolean,
): Promise<SettleAnswer[]> {
  const hasUnstarted = settlements.some((one) => 'counted' in unstartedOf(one));
  const text = settleStatement(sql, skipLocked, on === sql.driver, hasUnstarted);
  const values = [JSON.stringify(settlements.map(storedSettlement))];
  const answers = settlements.map((): SettleAnswer => 'settled');
  const rest = await rows<[number, SettleAnswer]>(on, text, values);
  for (const [at, answer] of rest) answers[at] = answer;
  return answers;
}

export async function settle(
  sql: Sql,
  settlements: readonly TaskSettlement[],
): Promise<readonly SettleAnswer[]> {
  return run('settle tasks', async () => {
    try {
      return await settleAround(settlements, (skipLocked) =>
        settleOn(sql, sql.driver, settlements, skipLocked),
      );
    } catch (error) {
      if (!isTooMuch(error)) throw refusalOf('settle tasks', error);
      if (settlements.length === 1) return ['refused'];
      // One of the settlements cannot be written; the others must not wait for it.
      const answers: SettleAnswer[] = [];
      for (const one of settlements) answers.push(...(await settle(sql, [one])));
      return answers;
    }
  });
}

/** Settles inside the caller's transaction. Errors are passed on as the driver threw them. */
export async function settleIn(
  sql: Sql,
  settlement: TaskSettlement,
  transaction: Queryable,
): Promise<SettleAnswer> {
  await requireTransaction(sql, transaction);
  const [answer] = await settleOn(sql, sql.driver.limited(transaction), [settlement], false);
  return answer === 'settled' ? 'settled' : 'lost';
}
