/** What instances need to know of each other all the time: who is alive, who leads, and who runs the same work. */
import { createHash } from 'node:crypto';
import type { Cluster, Instance, Leader, TaskAdvert } from '../work.js';

/** The leases of all instances. About a hundred bytes for each, whatever it runs. */
export interface Leases {
  /** By the server's clock. */
  readonly now: Date;
  /** All that are registered, expired and dead ones included. */
  readonly instances: readonly InstanceLease[];
  /** Who plans reactive tasks; absent if no instance ever did. */
  readonly leader?: Leader;
}

export interface InstanceLease extends Instance {
  /** How long its lease still holds by the server's clock; 0 or less: it is over. */
  readonly leftMs: number;
  /** Fenced: it can never renew, and the reclaimer hands on what it held. */
  readonly dead: boolean;
  /** As `InstanceState.plans`. */
  readonly plans?: number | null;
  /** Absent if an older version registered it. */
  readonly runs?: Runs;
}

/** What an instance runs, as `runsOf` made it: instances with the same text run the same names. */
export interface Runs {
  readonly jobs: string;
  readonly tasks: string;
}

/** Stands for an empty set of names. */
export const NOTHING = '';

const DIGITS = 16;

function digest(names: readonly string[]): string {
  if (names.length === 0) return NOTHING;
  const text = JSON.stringify([...names].sort());
  return createHash('sha256').update(text).digest('hex').slice(0, DIGITS);
}

/** The part of a `Registration` that says what the instance runs. */
interface Runnable {
  readonly names: readonly string[];
  readonly tasks: readonly Pick<TaskAdvert, 'task'>[];
}

/** The part of an `InstanceStore` that reads leases. */
interface LeaseReader {
  list(): Promise<Cluster>;
  leases?(): Promise<Leases>;
}

/** Stores keep this with a registration, so that nobody has to read its names to compare them. */
export const runsOf = ({ names, tasks }: Runnable): Runs => ({
  jobs: digest(names),
  tasks: digest(tasks.map(({ task }) => task)),
});

export const leasesOf = ({ now, instances, leader }: Cluster): Leases => ({
  now,
  instances: instances.map(({ instanceId, life, leftMs, dead, plans = null, ...rest }) => ({
    instanceId,
    life,
    leftMs,
    dead,
    plans,
    runs: runsOf(rest),
  })),
  ...(leader === undefined ? {} : { leader }),
});

export const readLeases = async (store: LeaseReader): Promise<Leases> =>
  (await store.leases?.()) ?? leasesOf(await store.list());
