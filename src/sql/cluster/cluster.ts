import type { Cluster, InstanceState, Leader } from '../../store/port.js';
import type { Sql } from '../connection/connection.js';
import { run } from '../connection/errors.js';
import { reactiveNames } from '../reactive/names.js';
import { ms } from '../jobs/record.js';
import { rows } from '../connection/rows.js';

/** The cluster as statements return it. */
export interface ClusterRow {
  readonly now: number;
  readonly paused: readonly string[];
  readonly instances: readonly InstanceState[];
  readonly leader: Leader | null;
}

/**
 * A SQL expression: the instances with what is left of their leases, the paused names and the leader, by the server's
 * clock.
 */
export function clusterJson({ names, leaseNow }: Sql): string {
  return `json_build_object(
    'now', ${ms('statement_timestamp()')},
    'paused', (select coalesce(json_agg(name), '[]') from ${names.pauses} where kind = 'jobs'),
    'instances', (
      select coalesce(json_agg(json_build_object(
        'instanceId', instance_id, 'life', life, 'names', names, 'tasks', tasks, 'dead', dead,
        'leftMs', ${ms(`lease_until`)} - ${ms(leaseNow())})), '[]')
      from ${names.instances}),
    'leader', (
      select json_build_object('life', life, 'instanceId', instance_id, 'term', term) from ${reactiveNames(names).planner}))`;
}

export const readCluster = ({ now, paused, instances, leader }: ClusterRow): Cluster => ({
  now: new Date(now),
  paused: new Set(paused),
  instances,
  ...(leader === null ? {} : { leader }),
});

export async function cluster(sql: Sql): Promise<Cluster> {
  const text = `select ${clusterJson(sql)}::text as json`;
  const [row] = await run('read instances', () => rows<ClusterRow>(sql.driver, text));
  return readCluster(row as ClusterRow);
}
