import type { ClientSession, Collection, Document } from 'mongodb';
import { OptionError } from '../../core/errors.js';
import type { SettleAnswer } from '../../store/port.js';
import type { Source, TaskSettlement } from '../../store/reactive/reactive.js';
import { literal, perDocument, run } from '../context.js';
import { HAND_ON_MS, isTimeLimit, isTransient, isUnstorable, unconfirmedCount } from '../errors.js';
import { findExact } from '../exact.js';
import { writeOnce } from '../majority.js';
import { noteSession } from '../cluster/sessions.js';
import { RUNNING } from './claim.js';
import { textOf, type TaskKey } from './document.js';
import { settledUnder } from './hold.js';
import { freeAfterCommit, freeSettled } from './keyed.js';
import type { MongodbSources, SourceOf } from './sources.js';

const DIRTY = { $eq: ['$status', 'processing_dirty'] };
/**
 * The planner looked at the document while the attempt ran, and it was as planned: the reason for a skip has passed.
 */
const TOUCHED = { $eq: ['$touched', true] };
/** The document has meanwhile grown too large for a snapshot: another run would have nothing to compare with. */
const OVERSIZED = { $eq: ['$lastObservedValues', null] };

/** A task whose document changed while it ran runs again, whatever this attempt came to. */
function settlePipeline(group: readonly TaskSettlement[]): Document[] {
  const [first] = group as [TaskSettlement, ...TaskSettlement[]];
  const again = first.skipped ? { $or: [DIRTY, TOUCHED] } : DIRTY;
  const unlessDirty = (value: unknown, dirty: unknown): Document => ({ $cond: [again, dirty, value] });
  const each = (value: (one: TaskSettlement) => unknown): Document => perDocument(group.map(value));
  const entries = group.map(({ entry }) => (entry === undefined ? [] : [entry]));
  const due = each(({ scheduledAt }) => scheduledAt ?? null);
  // A change shortens neither a deferral nor the delay of a sequence of attempts that it does not end.
  const keepsDelay = first.deferred || !first.resetRetries;
  const attempts = first.takeBack ? { $max: [0, { $subtract: ['$attempts', 1] }] } : '$attempts';
  const firstErrorAt = each(({ failure }) => failure?.firstErrorAt ?? null);
  // A group is of one task, so the document's id identifies a settlement. It compares faster than the whole key.
  const position = {
    $indexOfArray: [literal(group.map(({ lease }) => (lease.key as TaskKey).id)), '$_id.id'],
  };
  const set: Document = {
    status: unlessDirty(first.status, { $cond: [OVERSIZED, 'failed', 'pending'] }),
    lockedAt: null,
    // A change while the task ran moves it to its new key now.
    limitKey: { $ifNull: ['$nextLimitKey', '$limitKey'] },
    attempts: unlessDirty(attempts, first.resetRetries || first.success !== undefined ? 0 : attempts),
    ...(first.by === 'reclaimer' ? { leaseToken: null } : {}),
    ...(first.scheduledAt === undefined
      ? {}
      : {
          scheduledAt: unlessDirty(due, keepsDelay ? { $max: ['$scheduledAt', due] } : '$scheduledAt'),
          ...(first.deferred
            ? { deferredUntil: due }
            : { initialScheduledAt: unlessDirty(due, '$initialScheduledAt') }),
        }),
    ...(first.skipped ? { matched: unlessDirty(false, '$matched') } : {}),
    ...(first.status === 'pending' ? {} : { lastFinalizedAt: '$$NOW' }),
    ...(first.failure === undefined
      ? {}
      : {
          lastError: { $cond: [OVERSIZED, '$lastError', each(({ failure }) => failure?.message)] },
          failKind: each(({ failure }) => failure?.kind),
          firstErrorAt: unlessDirty(firstErrorAt, first.resetRetries ? null : firstErrorAt),
        }),
    ...(first.success === undefined
      ? {}
      : {
          lastSuccess: each(({ success }) => success),
          firstErrorAt: null,
          failKind: null,
          lastError: { $cond: [OVERSIZED, '$lastError', null] },
        }),
    ...(entries.some((list) => list.length > 0)
      ? {
          executionHistory: {
            $slice: [
              { $concatArrays: [{ $ifNull: ['$executionHistory', []] }, perDocument(entries)] },
              -Math.max(1, first.historyLimit),
            ],
          },
        }
      : {}),
  };
  return [
    ...(group.length > 1 ? [{ $set: { _at: position } }] : []),
    { $set: set },
    { $unset: ['claimedBy', 'startedToken', 'touched', 'overtaken', 'nextLimitKey', '_at'] },
  ];
}

/** Groups settlements that share a precondition and a shape; each group is one statement. */
function groupsOf(settlements: readonly TaskSettlement[]): TaskSettlement[][] {
  const groups = new Map<string, TaskSettlement[]>();
  for (const one of settlements) {
    const { lease, status, takeBack, deferred, skipped, resetRetries, historyLimit, by } = one;
    const own = lease.token === null ? lease.id : '';
    const shape = [one.scheduledAt, one.failure, one.success].map((part) => part !== undefined);
    const flags = [status, takeBack, deferred, skipped, resetRetries, historyLimit, by, ...shape];
    const key = [one.name, lease.token, own, ...flags].join('|');
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [one]);
    else group.push(one);
  }
  return [...groups.values()];
}

const preconditionOf = (group: readonly TaskSettlement[]): Document => {
  const [{ lease }] = group as [TaskSettlement];
  return {
    _id: { $in: group.map((one) => one.lease.key) },
    status: { $in: RUNNING },
    leaseToken: lease.token,
  };
};

/** Returns how many were written. Writes of a reclaimer wait at most `HAND_ON_MS` for an open transaction. */
function writeGroup(tasks: Collection, group: readonly TaskSettlement[]): Promise<number> {
  const write = async (limit: { readonly maxTimeMS?: number }): Promise<number> =>
    (await tasks.updateMany(preconditionOf(group), settlePipeline(group), limit)).matchedCount;
  return group[0]?.by === 'reclaimer' ? writeOnce(HAND_ON_MS, write, unconfirmedCount) : write({});
}

async function settleGroup(
  sources: MongodbSources,
  group: readonly TaskSettlement[],
  source: Source,
): Promise<readonly SettleAnswer[]> {
  const { tasks } = sources.place(source);
  try {
    if ((await writeGroup(tasks, group)) === group.length) return group.map(() => 'settled' as const);
  } catch (error) {
    const blocked = isTimeLimit(error) && group[0]?.by === 'reclaimer';
    // If a rule of the database refuses the batch, the caller bisects it.
    if (!blocked && (isTransient(error) || !isUnstorable(error))) throw error;
    if (group.length > 1) {
      const answers: SettleAnswer[] = [];
      for (const one of group) answers.push(...(await settleGroup(sources, [one], source)));
      return answers;
    }
    // Held by an open transaction: the reclaimer tries again later.
    return [blocked ? 'lost' : 'refused'];
  }
  return judge(sources, group, source);
}

/** Tells whose settlement an earlier try wrote, and whose task was lost. */
async function judge(
  sources: MongodbSources,
  group: readonly TaskSettlement[],
  source: Source,
): Promise<readonly SettleAnswer[]> {
  const filter = { _id: { $in: group.map(({ lease }) => lease.key as never) } };
  const options = { projection: { leaseToken: 1, status: 1 } };
  const rows = await findExact(sources.place(source).tasks, filter, options).toArray();
  const byKey = new Map(rows.map((row) => [textOf(row['_id']), row]));
  return group.map(({ lease, by }) => {
    const row = byKey.get(textOf(lease.key));
    if (row === undefined || row['leaseToken'] !== lease.token) return 'lost';
    // Still held: the statement missed it a moment ago, and the caller tries again.
    if (RUNNING.includes(row['status'] as string)) return 'changed';
    return by === 'holder' ? 'settled' : 'lost';
  });
}

export async function settle(
  sources: MongodbSources,
  settlements: readonly TaskSettlement[],
  sourceOf: SourceOf,
): Promise<readonly SettleAnswer[]> {
  return run('settle tasks', async () => {
    const answers = new Map<TaskSettlement, SettleAnswer>();
    await Promise.all(
      groupsOf(settlements).map(async (group) => {
        const [{ name }] = group as [TaskSettlement];
        const source = sourceOf(name);
        const answered = await settleGroup(sources, group, source);
        const settled = group.filter((_one, at) => answered[at] === 'settled');
        await freeSettled(sources.mongo, sources.place(source).tasks, settled);
        for (const [index, one] of group.entries()) answers.set(one, answered[index] as SettleAnswer);
      }),
    );
    return settlements.map((one) => answers.get(one) as SettleAnswer);
  });
}

/** Settles inside the caller's transaction. Errors keep the driver's labels, by which the transaction is retried. */
export async function settleIn(
  sources: MongodbSources,
  settlement: TaskSettlement,
  sourceOf: SourceOf,
  session: ClientSession,
): Promise<SettleAnswer> {
  // Outside a transaction, the task would be completed at once, whatever becomes of the caller's other writes.
  if (!session.inTransaction())
    throw new OptionError('complete() needs { transaction }: a session whose transaction has been started.');
  await noteSession(sources.mongo, settlement.lease.token, session);
  const { tasks } = sources.place(sourceOf(settlement.name));
  const { matchedCount } = await tasks.updateMany(
    preconditionOf([settlement]),
    settlePipeline([settlement]),
    {
      session,
    },
  );
  const { lease } = settlement;
  if (matchedCount === 1)
    freeAfterCommit(sources.mongo, tasks, settlement, session, () => settledUnder(sources, lease, sourceOf));
  return matchedCount === 1 ? 'settled' : 'lost';
}
