/**
 * The limit of the outbox, the table of changes. Beyond it the triggers leave changes out, rather than fill the disk,
 * and the leader reconciles every task instead. Three numbers decide; the first two are sequences, whose values take
 * effect at once and survive a rollback:
 *
 * - generation: only the leader raises it.
 * - missed: a trigger sets it to the generation in which it left a change out. While both are equal, every trigger does.
 * - settled: the last `missed` that a reconciliation was requested for; written in the transaction of the request.
 *
 * A transaction that leaves a change out shares an advisory lock until it ends. It takes the lock first, and compares
 * the numbers under it. The leader moves in this order:
 *
 * 1. `missed` > `settled`: a reconciliation is owed, whatever crashes from here on.
 * 2. It raises the generation, so triggers record changes again, and deletes what the outbox holds: all of that was
 *    committed before the reconciliation begins.
 * 3. It takes the lock for itself, without waiting. If it gets it, every transaction that left a change out has ended,
 *    and none can begin to. In that transaction it requests the reconciliation and settles.
 *
 * So what was left out was committed before the reconciliation began, and what commits later is recorded.
 */
import type { Outbox, Term } from '../../../store/reactive/reactive.js';
import type { Sql } from '../../connection/connection.js';
import { rows } from '../../connection/rows.js';
import { ms } from '../../jobs/record.js';
import { namesOf } from '../place.js';

/** How many changes are deleted at once. */
const BATCH = 10_000;

interface Numbers {
  readonly missed: number;
  readonly generation: number;
  readonly settled: number;
  readonly most: number;
  /** The newest change number that was handed out. */
  readonly head: number;
}

const numbersStatement = (sql: Sql): string => {
  const { outbox, captureGeneration, captureMissed, changeNumbers } = namesOf(sql);
  return `select json_build_object('missed', m.last_value, 'generation', g.last_value, 'settled', o.settled,
      'most', o.most, 'head', case when n.is_called then n.last_value else 0 end)::text as json
    from ${outbox} o, ${captureGeneration} g, ${captureMissed} m, ${changeNumbers} n`;
};

/** $1 life · $2 term. While the row is locked, no other instance can take over. */
const leads = (sql: Sql): string => `leads as materialized (
    select from ${namesOf(sql).planner} where life = $1::text and term = $2::bigint for share
  )`;

/**
 * Makes triggers record changes again if they stopped. Returns the limit once a reconciliation of everything has been
 * requested in place of what was left out; undefined if nothing was left out, or transactions that did so are open.
 */
export async function resumeCapture(sql: Sql, term: Term): Promise<number | undefined> {
  const [numbers] = await rows<Numbers>(sql.driver, numbersStatement(sql));
  if (numbers === undefined || numbers.missed <= numbers.settled) return undefined;
  if (numbers.missed >= numbers.generation) {
    if (!(await raiseGeneration(sql, term, numbers))) return undefined;
    await discard(sql, term, numbers.head);
  }
  return (await settle(sql, term)) ? numbers.most : undefined;
}

async function raiseGeneration(
  sql: Sql,
  { life, term }: Term,
  { missed, most, head }: Numbers,
): Promise<boolean> {
  const { captureGeneration, captureCheck } = namesOf(sql);
  const raised = await rows(
    sql.driver,
    `with ${leads(sql)} select to_json(array[
       setval($3::text::regclass, $4::bigint), setval($5::text::regclass, $6::bigint)])::text as json from leads`,
    [life, term, captureGeneration, missed + 1, captureCheck, head + most],
  );
  return raised.length === 1;
}

/** Goes up by number, since a walk from the start would meet the deleted rows again. */
async function discard(sql: Sql, { life, term }: Term, head: number): Promise<void> {
  const { changes } = namesOf(sql);
  const text = `with ${leads(sql)}, old as materialized (
      select c.seq from ${changes} c where exists (select from leads) and c.seq > $3::bigint and c.seq <= $4::bigint
      order by c.seq limit $5::integer
    ), gone as (
      delete from ${changes} where seq in (select seq from old)
    ) select to_json(max(seq))::text as json from old`;
  for (let last: number | undefined = 0; last !== undefined;) {
    const values: (string | number)[] = [life, term, last, head, BATCH];
    const [reached] = await rows<number>(sql.driver, text, values);
    last = reached;
  }
}

function settle(sql: Sql, { life, term }: Term): Promise<boolean> {
  const { outbox, states, partitionStates, captureLock } = namesOf(sql);
  return sql.driver.transaction(async (transaction) => {
    const [isAlone] = await rows<boolean>(
      transaction,
      `select to_json(pg_try_advisory_xact_lock(${captureLock}))::text as json`,
    );
    if (isAlone !== true) return false;
    // Nobody can change `missed` now. If the triggers stopped again, the next call begins anew.
    const [numbers] = await rows<Numbers>(transaction, numbersStatement(sql));
    if (numbers === undefined || numbers.missed >= numbers.generation) return false;
    const settled = await rows(
      transaction,
      `with ${leads(sql)} update ${outbox} set settled = $3::bigint from leads returning '1' as json`,
      [life, term, numbers.missed],
    );
    if (settled.length === 0) return false;
    for (const table of [states, partitionStates])
      await transaction.query(
        `update ${table} set wanted = wanted + 1, state = state || jsonb_build_object('reason', 'outbox full')`,
      );
    return true;
  });
}

/** Sets the limit, which the triggers read at their next check. The last instance that starts decides. */
export async function limitOutbox(sql: Sql, most: number): Promise<void> {
  const { outbox, captureCheck } = namesOf(sql);
  await sql.driver.query(
    `with changed as (
       update ${outbox} set most = $1::bigint where most <> $1::bigint returning one
     ) select setval($2::text::regclass, 0)::text as json from changed`,
    [most, captureCheck],
  );
}

/** The state of the outbox. The size is the distance of its oldest change from the newest number. */
export async function outboxOf(sql: Sql): Promise<Outbox> {
  const [found] = await rows<Numbers & { oldest: { seq: number; ageMs: number } | null }>(
    sql.driver,
    `select (n.json::jsonb || jsonb_build_object('oldest', (
         select jsonb_build_object('seq', c.seq, 'ageMs', ${ms('statement_timestamp()')} - ${ms('c.at')})
         from ${namesOf(sql).changes} c order by c.seq limit 1)))::text as json
     from (${numbersStatement(sql)}) n`,
  );
  if (found === undefined) return { changes: 0, ageMs: 0, limit: 0, stopped: false, missed: false };
  const { oldest, head, most, missed, generation, settled } = found;
  return {
    changes: oldest === null ? 0 : Math.max(1, head - oldest.seq + 1),
    ageMs: Math.max(0, oldest?.ageMs ?? 0),
    limit: most,
    stopped: missed === generation,
    missed: missed > settled,
  };
}
