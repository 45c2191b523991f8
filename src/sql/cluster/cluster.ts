import {
  NOTHING,
  type Cluster,
  type ClusterBrief,
  type InstanceState,
  type Leader,
  type Leases,
  type Runs,
} from '../../store/port.js';
import type { Sql } from '../connection/connection.js';
import { run } from '../connection/errors.js';
import { reactiveNames } from '../reactive/names.js';
import { ms } from '../jobs/record.js';
import { rows } from '../connection/rows.js';
import type { Names } from '../schema/names.js';

/** What peeks and claims of jobs return beside the jobs. */
export interface BriefRow {
  readonly now: number;
  readonly paused: readonly string[];
  readonly watched: boolean;
}

/** The row of the pauses that says until when somebody watches jobs. */
export const WATCHING = 'watching';

/** A SQL expression: the server's time, the paused names of jobs, and whether somebody watches jobs. */
export const briefJson = ({ names }: Sql): string => `json_build_object(
    'now', ${ms('statement_timestamp()')},
    'paused', (select coalesce(json_agg(name), '[]') from ${names.pauses} where kind = 'jobs'),
    'watched', exists(select from ${names.pauses} where kind = '${WATCHING}' and until > statement_timestamp()))`;

export function readBrief({ notifier }: Sql, { now, paused, watched }: BriefRow): ClusterBrief {
  notifier.watched = watched;
  return { now: new Date(now), paused: new Set(paused) };
}

/** The whole cluster as statements return it. */
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
        'instanceId', instance_id, 'life', life, 'names', names, 'tasks', tasks, 'plans', plans, 'dead', dead,
        'leftMs', ${ms(`lease_until`)} - ${ms(leaseNow())})), '[]')
      from ${names.instances}),
    'leader', (${leaderJson(names)}))`;
}

const leaderJson = (names: Names): string =>
  `select json_build_object('life', life, 'instanceId', instance_id, 'term', term, 'partitions', partitions, 'next', next)
   from ${reactiveNames(names).planner}`;

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

type LeaseRow = readonly [
  instanceId: string,
  life: string,
  dead: boolean,
  leftMs: number,
  jobs: string | null,
  tasks: string | null,
  plans: number | null,
];

interface LeasesRow {
  readonly now: number;
  readonly instances: readonly LeaseRow[];
  readonly leader: Leader | null;
}

const leasesStatement = ({ names, leaseNow }: Sql): string => `select json_build_object(
    'now', ${ms('statement_timestamp()')},
    'instances', (
      select coalesce(json_agg(json_build_array(
        instance_id, life, dead, ${ms(`lease_until`)} - ${ms(leaseNow())}, runs_jobs, runs_tasks, plans)), '[]')
      from ${names.instances}),
    'leader', (${leaderJson(names)}))::text as json`;

const toRuns = (jobs: string | null, tasks: string | null): { readonly runs?: Runs } =>
  jobs === null ? {} : { runs: { jobs, tasks: tasks ?? NOTHING } };

/** Reads no column that grows with what an instance runs. */
export async function leases(sql: Sql): Promise<Leases> {
  const [row] = await run('read leases', () => rows<LeasesRow>(sql.driver, leasesStatement(sql)));
  const { now, instances, leader } = row as LeasesRow;
  return {
    now: new Date(now),
    instances: instances.map(([instanceId, life, dead, leftMs, jobs, tasks, plans]) => ({
      instanceId,
      life,
      dead,
      leftMs,
      plans,
      ...toRuns(jobs, tasks),
    })),
    ...(leader === null ? {} : { leader }),
  };
}
