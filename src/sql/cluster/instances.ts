import {
  runsOf,
  type Capacity,
  type Instance,
  type InstanceDetails,
  type InstanceStore,
  type Registration,
  type Rival,
} from '../../store/port.js';
import { lockLimit, passingOver } from '../connection/around-locks.js';
import { cluster, clusterJson, leases, readCluster, type ClusterRow } from './cluster.js';
import type { Sql } from '../connection/connection.js';
import { run } from '../connection/errors.js';
import { ms } from '../jobs/record.js';
import { rows } from '../connection/rows.js';
import { isStorable, readable } from '../connection/values.js';
import { vitally } from '../connection/vital.js';

/**
 * $1 life · $2 instance · $3 names · $4 tasks · $5 policies · $6 host · $7 pid · $8 lease · $9 capacity · $10 and $11
 * what it runs · $12 plans
 */
function valuesOf(registration: Registration): (string | number | null)[] {
  const { life, instanceId, names, tasks, policies, host, pid, leaseMs, capacity, plans } = registration;
  const runs = runsOf(registration);
  return [
    life,
    instanceId,
    JSON.stringify(names.filter(isStorable)),
    JSON.stringify(tasks),
    // As entries: a name may be any text, and the order of keys does not matter.
    JSON.stringify(Object.entries(policies).filter(([name]) => isStorable(name))),
    readable(host),
    pid,
    leaseMs,
    capacity === undefined ? null : JSON.stringify(storable(capacity)),
    runs.jobs,
    runs.tasks,
    plans ?? null,
  ];
}

function storable({ slots, jobs, tasks }: Capacity): Capacity {
  const kept = (limits: Capacity['jobs']): Capacity['jobs'] => limits.filter(([name]) => isStorable(name));
  return { slots, jobs: kept(jobs), tasks: kept(tasks) };
}

const leaseUntil = ({ leaseNow }: Sql, parameter: string): string =>
  `${leaseNow()} + ${parameter}::double precision * interval '1 millisecond'`;

/** One statement, so that the list of instances and their details are of the same moment. */
async function describe(sql: Sql): ReturnType<InstanceStore['describe']> {
  const { driver, names } = sql;
  const details = `(select coalesce(json_object_agg(life, json_build_object('host', host, 'pid', pid, 'capacity', capacity)), '{}')
    from ${names.instances})`;
  const text = `select json_build_object('cluster', ${clusterJson(sql)}, 'details', ${details})::text as json`;
  type Details = { host: string; pid: number; capacity: Capacity | null };
  const [row] = await rows<{ cluster: ClusterRow; details: Record<string, Details> }>(driver, text);
  const { cluster: seen, details: byLife } = row as NonNullable<typeof row>;
  const read = readCluster(seen);
  const instances = read.instances.map((state): InstanceDetails => {
    const { host = '', pid = 0, capacity = null } = byLife[state.life] ?? {};
    return { ...state, host, pid, ...(capacity === null ? {} : { capacity }) };
  });
  return { cluster: read, instances };
}

export function instanceStore(sql: () => Sql): InstanceStore {
  const insert = async (registration: Registration): Promise<boolean> => {
    const { driver, names } = sql();
    const text = `
      insert into ${names.instances} (life, instance_id, names, tasks, policies, host, pid, lease_until, dead, capacity,
        runs_jobs, runs_tasks, renewed_at, plans)
      values ($1::text, $2::text, $3::text::jsonb, $4::text::jsonb, $5::text::jsonb, $6::text, $7::integer,
        ${leaseUntil(sql(), '$8')}, false, $9::text::jsonb, $10::text, $11::text, statement_timestamp(), $12::integer)
      on conflict do nothing
      returning to_json(life)::text as json`;
    driver.leaseOf?.(registration.leaseMs);
    const on = vitally(sql(), registration.leaseMs);
    return (await rows(on, text, valuesOf(registration))).length === 1;
  };

  /** The live registration with this instance id, which may be an earlier attempt of the same life. */
  const rival = async (instanceId: string): Promise<Rival | undefined> => {
    const { driver, names, leaseNow } = sql();
    const text = `select json_build_object('life', life, 'host', host, 'pid', pid,
        'expired', lease_until <= ${leaseNow()})::text as json
      from ${names.instances} where instance_id = $1::text and not dead`;
    return (await rows<Rival>(driver, text, [instanceId]))[0];
  };

  const fence: InstanceStore['fence'] = async (instance) => {
    const { driver, names, leaseNow } = sql();
    const text = `with l as materialized (${lockLimit})
      update ${names.instances} set dead = true from l
      where life = $1::text and (dead or lease_until <= ${leaseNow()})
      returning policies::text as json`;
    const [policies] = await rows<[string, unknown][]>(driver, text, [instance.life]);
    return policies && { policies: Object.fromEntries(policies) };
  };

  const remove = async (what: string, instance: Instance, condition: string): Promise<void> => {
    const { driver, names } = sql();
    const text = `delete from ${names.instances} where life = $1::text and ${condition}`;
    await run(what, () => driver.query(text, [instance.life]));
  };

  return {
    /** An instance whose row an open transaction holds is left for the next pass: others may be dead as well. */
    fence: (instance) =>
      run('fence', () =>
        passingOver(
          () => fence(instance),
          () => undefined,
        ),
      ),
    list: () => cluster(sql()),
    leases: () => leases(sql()),
    describe: () => run('read instances', () => describe(sql())),
    register: (registration, takeOver) =>
      run('register', async () => {
        for (;;) {
          if (await insert(registration)) return {};
          const other = await rival(registration.instanceId);
          if (other?.life === registration.life) return {};
          if (other === undefined) continue;
          if (other.life !== takeOver) return { refusedBy: other };
          const freed = await fence({ instanceId: registration.instanceId, life: other.life });
          if (freed === undefined) return { refusedBy: { ...other, expired: false } };
        }
      }),
    renew: async (registration) => {
      const { names, clock } = sql();
      const on = vitally(sql(), registration.leaseMs);
      const text = `
        update ${names.instances} set instance_id = $2::text, names = $3::text::jsonb, tasks = $4::text::jsonb,
          policies = $5::text::jsonb, host = $6::text, pid = $7::integer, lease_until = ${leaseUntil(sql(), '$8')},
          capacity = $9::text::jsonb, runs_jobs = $10::text, runs_tasks = $11::text, renewed_at = statement_timestamp(),
          plans = $12::integer
        where life = $1::text and not dead
        returning ${ms('statement_timestamp()')}::text as json`;
      const sentAt = performance.now();
      const [now] = await run('renew', () => rows<number>(on, text, valuesOf(registration)));
      if (now === undefined) return 'lost';
      clock.learn(new Date(now), sentAt, performance.now());
      return 'renewed';
    },
    deregister: (instance) => remove('deregister', instance, 'true'),
    bury: (instance) => remove('bury', instance, 'dead'),
  };
}
