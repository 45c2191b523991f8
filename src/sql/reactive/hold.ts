/** What happens to a task between claim and settlement. */
import type { TaskRecord } from '../../core/records/task.js';
import type { Instance, Lease, StrayQuery } from '../../store/port.js';
import type { Sql } from '../connection/connection.js';
import { run } from '../connection/errors.js';
import { answering, rows } from '../connection/rows.js';
import { namesOf } from './place.js';
import { COLUMNS, IS_RUNNING, LEAN_COLUMNS, leaseKey, records, type ShapeOf } from './record.js';

const keysOf = (leases: readonly Lease[]): string => JSON.stringify(leases.map(leaseKey));

export async function held(
  sql: Sql,
  leases: readonly Lease[],
  shapeOf: ShapeOf,
): Promise<readonly (TaskRecord | undefined)[]> {
  const text = answering(
    COLUMNS,
    `${namesOf(sql).tasks} join json_to_recordset($1::text::json) as g(task text, key text) using (task, key)
     where ${IS_RUNNING}`,
  );
  const found = await run('read held tasks', () => records(sql.driver, text, [keysOf(leases)], shapeOf));
  const byId = new Map(found.map((task) => [task.id, task]));
  return leases.map((lease) => {
    const task = byId.get(lease.id);
    return task !== undefined && (task.leaseToken ?? null) === lease.token ? task : undefined;
  });
}

export async function settledUnder(sql: Sql, lease: Lease): Promise<boolean> {
  const { task, key } = leaseKey(lease);
  const text = `select to_json(not (${IS_RUNNING}) and lease_token is not distinct from $3::text)::text as json
    from ${namesOf(sql).tasks} where task = $1::text and key = $2::text`;
  const [settled = true] = await run('read a settled task', () =>
    rows<boolean>(sql.driver, text, [task, key, lease.token]),
  );
  return settled;
}

export async function begin(sql: Sql, lease: Lease): Promise<'begun' | 'lost'> {
  const { task, key } = leaseKey(lease);
  const text = `update ${namesOf(sql).tasks} set started_token = $3::text
    where task = $1::text and key = $2::text and ${IS_RUNNING} and lease_token = $3::text returning '1' as json`;
  const begun = await run('begin a task', () => rows(sql.driver, text, [task, key, lease.token]));
  return begun.length === 1 ? 'begun' : 'lost';
}

/** Tokens begin with the life that made them. */
export async function heldBy(sql: Sql, instance: Instance, limit: number): Promise<readonly TaskRecord[]> {
  const text = answering(
    LEAN_COLUMNS,
    `${namesOf(sql).tasks} where claimed_by = $1::text and ${IS_RUNNING} and starts_with(lease_token, $2::text)
     limit $3::integer`,
  );
  return run('read a dead instance', () =>
    records(sql.driver, text, [instance.instanceId, `${instance.life}.`, limit]),
  );
}

/** Tasks under no valid lease: a claim that landed after its owner's death. */
export async function strays(
  sql: Sql,
  { lives, olderThanMs, limit }: StrayQuery,
): Promise<readonly TaskRecord[]> {
  const text = answering(
    LEAN_COLUMNS,
    `${namesOf(sql).tasks} where ${IS_RUNNING}
       and split_part(lease_token, '.', 1) <> all(array(select json_array_elements_text($1::text::json)))
       and locked_at < statement_timestamp() - $2::double precision * interval '1 millisecond'
     limit $3::integer`,
  );
  return run('look for stray tasks', () =>
    records(sql.driver, text, [JSON.stringify(lives.map(({ life }) => life)), olderThanMs, limit]),
  );
}
