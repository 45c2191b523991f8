import type { AnyBulkWriteOperation, ClientSession, Document, Filter } from 'mongodb';
import { OptionError } from '../../core/errors.js';
import { LOG_LIMIT } from '../../core/records/job.js';
import type { SettleAnswer, Settlement } from '../../store/port.js';
import { BSON_OPTIONS, literal, perDocument, run, type Mongo } from '../context.js';
import { toText, type JobDocument, type Key } from './document.js';
import { HAND_ON_MS, isTimeLimit, isTransient, isUnstorable, unconfirmedCount } from '../errors.js';
import { findExact } from '../exact.js';
import { writeOnce } from '../majority.js';
import { noteSession } from '../cluster/sessions.js';

/** Removed from a job that is no longer held. */
const LEASE_FIELDS = ['claimedBy', 'lastHeartbeat', 'heartbeatInterval', 'startedToken'];

/** The fields to set on one job. */
function fieldsOf(settlement: Settlement): Document {
  const { status, set, by } = settlement;
  return { ...set, status, lockedAt: null, ...(by === 'reclaimer' ? { leaseToken: null } : {}) };
}

/** A batch is recorded at one time for all of it; the times of each attempt are in its history. */
const BATCH_TIMES = ['finishedAt', 'expiresAt'];

function setOf(settlements: readonly Settlement[]): Document {
  const rows = settlements.map(fieldsOf);
  const fields = Object.keys(rows[0] ?? {}).map((field) => {
    const values: unknown[] = rows.map((row): unknown => row[field]);
    return [field, BATCH_TIMES.includes(field) ? literal(values[0]) : perDocument(values)] as const;
  });
  return Object.fromEntries(fields);
}

const appended = (field: string, lists: readonly (readonly unknown[])[], keep: number): Document => ({
  $slice: [{ $concatArrays: [{ $ifNull: [`$${field}`, []] }, perDocument(lists)] }, -keep],
});

/** One pipeline for a whole group. The user's values are inside `$literal`. */
function settlePipeline(settlements: readonly Settlement[]): Document[] {
  const [first] = settlements;
  const entries = settlements.map(({ entry }) => (entry === undefined ? [] : [entry]));
  const logs = settlements.map((settlement) => settlement.logs ?? []);
  const position = { $indexOfArray: [literal(settlements.map(({ lease }) => lease.key)), '$_id'] };
  return [
    ...(settlements.length > 1 ? [{ $set: { _at: position } }] : []),
    {
      $set: {
        ...setOf(settlements),
        updatedAt: '$$NOW',
        ...(wakes(settlements) ? { wake: Date.now() } : {}),
        ...(entries.some((list) => list.length > 0)
          ? { history: appended('history', entries, first?.historyLimit ?? 1) }
          : {}),
        ...(logs.some((list) => list.length > 0) ? { logs: appended('logs', logs, LOG_LIMIT) } : {}),
      },
    },
    { $unset: [...LEASE_FIELDS, '_at'] },
  ];
}

/**
 * Wakes idle instances for work that goes back to pending and may be due: reclaimed, or with its due time unchanged.
 */
const wakes = (settlements: readonly Settlement[]): boolean =>
  settlements.some(
    ({ status, by, set }) => status === 'pending' && (by === 'reclaimer' || set.nextRunAt === undefined),
  );

/** How long the job is kept. One batch may hold names with different retention. */
const keptMs = ({ finishedAt, expiresAt }: Settlement['set']): number | undefined =>
  finishedAt && expiresAt ? expiresAt.getTime() - finishedAt.getTime() : undefined;

/** Groups settlements that share a precondition and a shape; each group is one statement. */
function groupsOf(settlements: readonly Settlement[]): Settlement[][] {
  const groups = new Map<string, Settlement[]>();
  for (const settlement of settlements) {
    const { lease, status, ifRev, remove = false, set, by, historyLimit } = settlement;
    const own = ifRev === undefined && lease.token !== null ? '' : lease.id;
    const key = [lease.token, status, remove, own, by, historyLimit, keptMs(set), ...Object.keys(set)].join(
      '|',
    );
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [settlement]);
    else group.push(settlement);
  }
  return [...groups.values()];
}

/**
 * The lease must still be the holder's. Work that goes back to pending must have no cancel request, and a schedule must
 * be at the expected revision.
 */
function preconditionOf(mongo: Mongo, group: readonly Settlement[]): Filter<JobDocument> {
  const [{ lease, status, ifRev } = {} as Settlement] = group;
  return {
    _id: { $in: group.map((settlement) => settlement.lease.key as Key) },
    status: 'processing',
    leaseToken: lease.token,
    ...(lease.token === null ? { lockedAt: lease.lockedAt } : {}),
    ...(status === 'pending' ? { cancelRequestedAt: null } : {}),
    ...(ifRev === undefined ? {} : { scheduleRev: ifRev }),
    ...(mongo.sharded ? { part: { $in: [...new Set(group.map((one) => one.lease.part ?? null))] } } : {}),
  };
}

function operationOf(mongo: Mongo, group: readonly Settlement[]): AnyBulkWriteOperation<JobDocument> {
  const filter = preconditionOf(mongo, group);
  if (group[0]?.remove === true) return { deleteMany: { filter } };
  return { updateMany: { filter, update: settlePipeline(group) } };
}

/** Returns how many were written. Writes of a reclaimer wait at most `HAND_ON_MS` for an open transaction. */
function writeAll(mongo: Mongo, settlements: readonly Settlement[]): Promise<number> {
  const operations = groupsOf(settlements).map((group) => operationOf(mongo, group));
  const write = async (limit: { readonly maxTimeMS?: number }): Promise<number> => {
    const answer = await mongo.jobs.bulkWrite(operations, { ordered: false, ...limit });
    return answer.matchedCount + answer.deletedCount;
  };
  return settlements[0]?.by === 'reclaimer' ? writeOnce(HAND_ON_MS, write, unconfirmedCount) : write({});
}

/** If all were written, no read is needed; otherwise, a read tells which were not. */
export async function settle(
  mongo: Mongo,
  settlements: readonly Settlement[],
): Promise<readonly SettleAnswer[]> {
  return run('settle', async () => {
    try {
      if ((await writeAll(mongo, settlements)) === settlements.length)
        return settlements.map(() => 'settled' as const);
    } catch (error) {
      const blocked = isTimeLimit(error) && settlements[0]?.by === 'reclaimer';
      // If a rule of the database refuses the batch, the caller bisects it.
      if (!blocked && (isTransient(error) || !isUnstorable(error))) throw error;
      if (settlements.length > 1) return await oneByOne(mongo, settlements);
      // Held by an open transaction: the reclaimer tries again later. Otherwise, it is too large or cannot be encoded
      // as BSON, and every retry would fail in the same way.
      return [blocked ? 'lost' : 'refused'];
    }
    return await judge(mongo, settlements);
  });
}

/** One settlement cannot be written; the others must not wait for it. */
async function oneByOne(mongo: Mongo, settlements: readonly Settlement[]): Promise<SettleAnswer[]> {
  const answers: SettleAnswer[] = [];
  for (const settlement of settlements) answers.push(...(await settle(mongo, [settlement])));
  return answers;
}

/** Tells whose settlement was written, whose work was lost, and whose changed meanwhile. */
async function judge(mongo: Mongo, settlements: readonly Settlement[]): Promise<SettleAnswer[]> {
  const filter = { _id: { $in: settlements.map(({ lease }) => lease.key as Key) } };
  const options = { projection: { leaseToken: 1, status: 1, lockedAt: 1 } };
  const rows = await findExact(mongo.jobs, filter, options, BSON_OPTIONS).toArray();
  const byId = new Map(rows.map((row) => [toText(row._id), row]));
  return settlements.map(({ lease, remove = false, by }) => {
    const row = byId.get(toText(lease.key));
    if (row === undefined) return remove ? 'settled' : 'lost';
    if (row.status === 'processing') return sameHolder(row, lease) ? 'changed' : 'lost';
    return by === 'holder' && row['leaseToken'] === lease.token ? 'settled' : 'lost';
  });
}

function sameHolder(row: JobDocument, lease: Settlement['lease']): boolean {
  if (lease.token !== null) return row['leaseToken'] === lease.token;
  const lockedAt = row['lockedAt'] instanceof Date ? row['lockedAt'].getTime() : null;
  return (row['leaseToken'] ?? null) === null && lockedAt === (lease.lockedAt?.getTime() ?? null);
}

/** Settles inside the caller's transaction. Errors keep the driver's labels, by which the transaction is retried. */
export async function settleIn(
  mongo: Mongo,
  settlement: Settlement,
  session: ClientSession,
): Promise<SettleAnswer> {
  // Outside a transaction, the job would be completed at once, whatever becomes of the caller's other writes.
  if (!session.inTransaction()) {
    throw new OptionError(
      'transaction: this session has no open transaction, so the completion would be committed at once. Call ' +
        'startTransaction() on it first, or use `mill.withTransaction`.',
    );
  }
  await noteSession(mongo, settlement.lease.token, session);
  const filter = preconditionOf(mongo, [settlement]);
  if (settlement.remove === true) {
    const { deletedCount } = await mongo.jobs.deleteMany(filter, { session });
    return deletedCount === 1 ? 'settled' : 'lost';
  }
  const { matchedCount } = await mongo.jobs.updateMany(filter, settlePipeline([settlement]), { session });
  return matchedCount === 1 ? 'settled' : 'lost';
}
