import type { Document } from 'mongodb';
import {
  runsOf,
  type Capacity,
  type Instance,
  type InstanceDetails,
  type InstanceState,
  type InstanceStore,
  type Registration,
  type Rival,
} from '../../store/port.js';
import { literal, run, type Mongo } from '../context.js';
import { isDuplicate } from '../errors.js';
import { cluster, leases, readWhole, wholePipeline } from '../jobs/claim/peek.js';
import { renewal } from './renewal.js';
import { endSessions } from './sessions.js';

const idOf = (instance: Instance): string => `instance:${instance.life}`;

function fieldsOf({ wakes }: Mongo, registration: Registration): object {
  const { instanceId, life, names, tasks, policies, host, pid, leaseMs, capacity, plans } = registration;
  return {
    kind: 'instance',
    instanceId: literal(instanceId),
    life,
    names: literal([...names]),
    tasks: literal([...tasks]),
    // Names may contain any character, so policies are stored as pairs, not as keys.
    policies: literal(Object.entries(policies).map(([name, policy]) => ({ name, policy }))),
    host: literal(host),
    pid,
    capacity: literal(capacity ?? null),
    runs: literal(runsOf(registration)),
    plans: plans ?? null,
    dead: false,
    // It tells others of its writes by a message; see messages.ts.
    sends: wakes !== undefined,
    leaseUntil: { $add: ['$$NOW', leaseMs] },
  };
}

const [match = {}, project = {}] = wholePipeline;
const detailsPipeline: Document[] = [
  match,
  { $project: { ...(project['$project'] as Document), host: 1, pid: 1, capacity: 1 } },
];

/** Registrations of an older version have no capacity. */
function toDetails({ host, pid, capacity, ...state }: Document & InstanceState): InstanceDetails {
  return {
    ...state,
    host: String(host),
    pid: Number(pid),
    ...(capacity === undefined || capacity === null ? {} : { capacity: capacity as Capacity }),
  };
}

export function instanceStore(mongo: () => Mongo): InstanceStore {
  const upsert = async (registration: Registration): Promise<boolean> => {
    try {
      await mongo().globals.updateOne(
        { _id: idOf(registration) },
        [{ $set: fieldsOf(mongo(), registration) }],
        {
          upsert: true,
        },
      );
      return true;
    } catch (error) {
      if (isDuplicate(error)) return false;
      throw error;
    }
  };

  const rival = async (instanceId: string): Promise<Rival | undefined> => {
    const living = { $match: { kind: 'instance', dead: false, instanceId } };
    const expired = { $lte: ['$leaseUntil', '$$NOW'] };
    const [row] = await mongo()
      .globals.aggregate([living, { $project: { _id: 0, life: 1, host: 1, pid: 1, expired } }])
      .toArray();
    if (row === undefined) return undefined;
    const { life, host, pid } = row;
    return { life: String(life), host: String(host), pid: Number(pid), expired: row['expired'] === true };
  };

  const fence: InstanceStore['fence'] = async (instance) => {
    const expired = { _id: idOf(instance), $expr: { $or: ['$dead', { $lte: ['$leaseUntil', '$$NOW'] }] } };
    const row = await run('fence', () =>
      mongo().globals.findOneAndUpdate(expired, { $set: { dead: true } }, { returnDocument: 'after' }),
    );
    if (row === null) return undefined;
    await endSessions(mongo(), row);
    const pairs = row['policies'] as { name: string; policy: unknown }[];
    return { policies: Object.fromEntries(pairs.map(({ name, policy }) => [name, policy])) };
  };

  return {
    fence,
    list: () => cluster(mongo()),
    leases: () => leases(mongo()),
    describe: () =>
      run('read instances', async () => {
        const rows = await mongo().globals.aggregate(detailsPipeline).toArray();
        const read = readWhole(rows, mongo().clock.now());
        return { cluster: read, instances: read.instances.map((one) => toDetails(one)) };
      }),
    register: (registration, takeOver) =>
      run('register', async () => {
        for (;;) {
          if (await upsert(registration)) return {};
          const other = await rival(registration.instanceId);
          if (other === undefined) continue;
          if (other.life !== takeOver) return { refusedBy: other };
          const freed = await fence({ instanceId: registration.instanceId, life: other.life });
          if (freed === undefined) return { refusedBy: { ...other, expired: false } };
        }
      }),
    renew: async (registration) => {
      const sentAt = performance.now();
      const asked = run('renew', () =>
        mongo().globals.findOneAndUpdate(
          { _id: idOf(registration), dead: false },
          [{ $set: fieldsOf(mongo(), registration) }],
          { returnDocument: 'after', projection: { leaseUntil: 1 } },
        ),
      );
      const row = await renewal(registration.leaseMs, asked);
      if (row === null) return 'lost';
      const serverTime = new Date((row['leaseUntil'] as Date).getTime() - registration.leaseMs);
      mongo().clock.learn(serverTime, sentAt, performance.now());
      return 'renewed';
    },
    deregister: async (instance) => {
      await run('deregister', () => mongo().globals.deleteOne({ _id: idOf(instance) }));
    },
    bury: async (instance) => {
      await run('bury', () => mongo().globals.deleteOne({ _id: idOf(instance), dead: true }));
    },
  };
}
