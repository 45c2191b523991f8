/** Reactive tasks as limits per key see them, and what offers their keys to claims. */
import type { ClientSession, Collection, Document } from 'mongodb';
import { OptionError } from '../../core/errors.js';
import { show } from '../../core/options.js';
import type { Source, TaskPlan, TaskSettlement } from '../../store/reactive/reactive.js';
import { afterTransaction } from '../cluster/messages.js';
import type { Mongo } from '../context.js';
import { EXACT, findExact } from '../exact.js';
import { readTaskCluster, taskClusterPipeline } from '../jobs/claim/peek.js';
import { markKeys, type KeyOwner, type Mark } from '../limits/keys/document.js';
import { freeKeys, type Freed } from '../limits/keys/free.js';
import type { KeyedWork } from '../limits/keys/work.js';
import { OURS, textOf, type TaskKey } from './document.js';
import type { MongodbSources } from './sources.js';

export const ownerOf = (task: string): KeyOwner => ({ task });

/** The tasks of a name in their collection. `asked`: the tasks whose definitions in force a claim reads as well. */
export const keyedTasks = (
  collection: Collection,
  task: string,
  asked: readonly string[] = [],
): KeyedWork => ({
  owner: ownerOf(task),
  name: task,
  nameField: '$task',
  collection,
  due: 'scheduledAt',
  named: { task: { $eq: task } },
  ours: { ...OURS, task: { $eq: task } },
  running: { status: { $in: ['processing', 'processing_dirty'] } },
  isPrioritised: false,
  newest: { scheduledAt: -1, _id: -1 },
  hints: { byName: 'tidemill_by_status', ofKey: 'tidemill_of_key' },
  reading: EXACT,
  idText: textOf,
  brief: taskClusterPipeline(asked),
  readBrief: readTaskCluster,
});

/** Keys are documents of the store's database, which a claim joins with the tasks. */
export function checkKeyed(where: string, { limitKey, source }: TaskPlan, { globals }: Mongo): void {
  if (limitKey === undefined || (source.database ?? globals.dbName) === globals.dbName) return;
  throw new OptionError(
    `${where}: limits.perKey needs a collection in the database of the store, ${show(globals.dbName)}; ` +
      `${show(source.collection)} is in ${show(source.database)}. Enqueue a job with perKey in the handler instead.`,
  );
}

/** The tasks of a name where its newest definition watches; undefined if no instance has published one. */
export async function publishedTasks(
  { globals, client, options }: Mongo,
  tasksOf: (collection: string) => string,
  task: string,
): Promise<KeyedWork | undefined> {
  const [newest] = await globals
    .find({ kind: 'definition', task }, { projection: { source: 1 } })
    .sort({ firstSeenAt: -1 })
    .limit(1)
    .toArray();
  const source = newest?.['source'] as Source | undefined;
  if (source === undefined || (source.database ?? globals.dbName) !== globals.dbName) return undefined;
  const tasks = client.db(globals.dbName).collection(tasksOf(source.collection), { ...options, ...EXACT });
  return keyedTasks(tasks, task);
}

interface PendingTask {
  readonly _id: TaskKey;
  readonly limitKey: string;
  readonly scheduledAt: Date;
}

/** Of the tasks with these keys, those that are pending under a key of limits. */
async function pendingOf(tasks: Collection, keys: readonly TaskKey[]): Promise<readonly PendingTask[]> {
  const filter: Document = { _id: { $in: keys }, status: 'pending', limitKey: { $type: 'string' } };
  const rows = findExact(tasks, filter, { projection: { limitKey: 1, scheduledAt: 1 } });
  return (await rows.toArray()) as unknown as readonly PendingTask[];
}

const markOf = ({ _id, limitKey, scheduledAt }: PendingTask): Mark => ({
  name: ownerOf(_id.task),
  key: limitKey,
  from: scheduledAt,
});

/** Offers the keys of tasks that were planned. If this is lost, `repairKeys` finds them. */
export async function markPlanned(
  { mongo }: MongodbSources,
  tasks: Collection,
  plans: readonly TaskPlan[],
  ids: readonly unknown[],
): Promise<void> {
  const keyed = plans.filter(({ limitKey }) => limitKey !== undefined);
  if (keyed.length === 0 || ids.length === 0) return;
  const keys = keyed.flatMap(({ task }) => ids.map((id): TaskKey => ({ task, id })));
  await markKeys(mongo, (await pendingOf(tasks, keys)).map(markOf));
}

/**
 * Frees the keys of tasks that were settled before, and offers those of tasks that wait again: their document may have
 * changed, and their key with it.
 */
export async function freeSettled(
  mongo: Mongo,
  tasks: Collection,
  settlements: readonly TaskSettlement[],
): Promise<void> {
  const keyed = settlements.filter(({ lease }) => lease.limit !== undefined);
  if (keyed.length === 0) return;
  const pending = await pendingOf(
    tasks,
    keyed.map(({ lease }) => lease.key as TaskKey),
  );
  const byId = new Map(pending.map((row) => [textOf(row._id), row]));
  const isMoved = ({ _id, limitKey }: PendingTask): boolean =>
    keyed.some(({ lease }) => textOf(lease.key) === textOf(_id) && lease.limit?.key !== limitKey);
  const freed = keyed.map(({ lease, name, unstarted }): Freed => {
    const key = lease.limit?.key ?? '';
    const row = byId.get(textOf(lease.key));
    const isWaiting = row?.limitKey === key;
    return {
      name: ownerOf(name),
      key,
      lease,
      ...(isWaiting ? { pendingFrom: row.scheduledAt } : {}),
      ...(unstarted === undefined ? {} : { unstarted }),
    };
  });
  await markKeys(mongo, pending.filter(isMoved).map(markOf));
  await freeKeys(mongo, freed);
}

/** The same for a task that was settled in a transaction, once that has committed. */
export function freeAfterCommit(
  mongo: Mongo,
  tasks: Collection,
  settlement: TaskSettlement,
  session: ClientSession,
  isSettled: () => Promise<boolean>,
): void {
  if (settlement.lease.limit === undefined) return;
  afterTransaction(session, async () => {
    if (await isSettled()) await freeSettled(mongo, tasks, [settlement]);
  });
}
