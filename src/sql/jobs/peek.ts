import type { DueSummary } from '../../store/port.js';
import { clusterJson, readCluster, type ClusterRow } from '../cluster/cluster.js';
import type { Sql } from '../connection/connection.js';
import { run } from '../connection/errors.js';
import { ms } from './record.js';
import { rows } from '../connection/rows.js';
import { isStorable } from '../connection/values.js';

/** Reads one index key per name: the earliest time that a pending job of it runs at, due or not. */
export const dueStatement = (sql: Sql): string => `
  select json_build_object('cluster', ${clusterJson(sql)}, 'due', (
    select coalesce(json_agg(json_build_array(n.name, ${ms('j.next_run_at')})), '[]')
    from json_array_elements_text($1::text::json) as n(name)
    cross join lateral (
      select next_run_at from ${sql.names.jobs}
      where name = n.name and status = 'pending' and next_run_at > '-infinity'
      order by next_run_at, id limit 1
    ) j))::text as json`;

/** What an idle instance needs to know, in one statement. */
export async function peek(sql: Sql, names: readonly string[]): Promise<DueSummary> {
  const values = [JSON.stringify(names.filter(isStorable))];
  const [row] = await run('look', () =>
    rows<{ cluster: ClusterRow; due: [string, number][] }>(sql.driver, dueStatement(sql), values),
  );
  return {
    cluster: readCluster(row?.cluster as ClusterRow),
    nextDue: new Map(row?.due.map(([name, at]) => [name, new Date(at)])),
    // A newer schema opens only if it says that this version works with it, so every job there is understood.
    foreign: false,
  };
}
