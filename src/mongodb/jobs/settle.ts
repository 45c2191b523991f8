import type { AnyBulkWriteOperation, ClientSession, Document, Filter } from 'mongodb';
import { LOG_LIMIT } from '../../core/records/job.js';
import { keptForWatchers } from '../../store/jobs/changes.js';
import type { SettleAnswer, Settlement } from '../../store/port.js';
import { BSON_OPTIONS, literal, needOpenTransaction, perDocument, run, type Mongo } from '../context.js';
import { send } from '../cluster/messages.js';
import { toDocument, toText, type JobDocument, type Key } from './document.js';
import { loadExisting } from './enqueue/parts.js';
import {
  HAND_ON_MS,
  isConflict,
  isDuplicate,
  isTimeLimit,
  isTransient,
  isUnstorable,
  unconfirmedCount,
} from '../errors.js';
import { findExact } from '../exact.js';
import { writeOnce } from '../majority.js';
import { noteSession } from '../cluster/sessions.js';
import { markKeys } from '../limits/keys/document.js';
import { freeAfter, freedBy, freeKeys } from '../limits/keys/free.js';

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
 * Wakes idle instances for work that goes back to pending and may be due: reclaimed, or with its due time unchanged; and
 * for released successors.
 */
export const wakes = (settlements: readonly Settlement[]): boolean =>
  settlements.some(
    ({ status, by, set, releases }) =>
      releases !== undefined || (status === 'pending' && (by === 'reclaimer' || set.nextRunAt === undefined)),
  );

/** How long the job is kept. One batch may hold names with different retention. */
const keptMs = ({ finishedAt, expiresAt }: Settlement['set']): number | undefined =>
  finishedAt && expiresAt ? expiresAt.getTime() - finishedAt.getTime() : undefined;

/** Groups settlements that share a precondition and a shape; each group is one statement. */
function groupsOf(settlements: readonly Settlement[]): Settlement[][] {
  const groups = new Map<string, Settlement[]>();
  for (const settlement of settlements) {
    const { lease, status, ifRev, remove = false, set, by, historyLimit, releases } = settlement;
    const own = ifRev === undefined && lease.token !== null ? '' : lease.id;
    const shape = [remove, own, by, historyLimit, keptMs(set), releases !== undefined, ...Object.keys(set)];
    const key = [lease.token, lease.holder, status, ...shape].join('|');
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [settlement]);
    else group.push(settlement);
  }
  return [...groups.values()];
}

/**
 * The lease must still be the holder's: an older program that has claimed the job since has left the token. Work that goes back to pending must have no cancel request, and a schedule must
 * be at the expected revision.
 */
function preconditionOf(mongo: Mongo, group: readonly Settlement[]): Filter<JobDocument> {
  const [{ lease, status, ifRev, releases } = {} as Settlement] = group;
  return {
    _id: { $in: group.map((settlement) => settlement.lease.key as Key) },
    status: 'processing',
    leaseToken: lease.token,
    ...(lease.holder === undefined ? {} : { claimedBy: lease.holder }),
    ...(lease.token === null ? { lockedAt: lease.lockedAt } : {}),
    ...(status === 'pending'
      ? { cancelRequestedAt: null }
      : releases === undefined
        ? { followed: null }
        : {}),
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

/** Settles jobs, then frees their keys and releases their successors. */
export async function settle(mongo: Mongo, given: readonly Settlement[]): Promise<readonly SettleAnswer[]> {
  if (given.length === 0) return [];
  const settlements = mongo.watching.size > 0 ? keptForWatchers(given) : given;
  const answers = await settleJobs(mongo, settlements);
  await freeKeys(mongo, freedBy(settlements.filter((_one, at) => answers[at] === 'settled')));
  // A repeat of this call releases again; after a crash, `releaseSuccessors` does.
  for (const [at, { releases }] of settlements.entries()) {
    if (releases !== undefined && answers[at] === 'settled')
      await run('release a successor', async () => (await loadExisting()).release(mongo, releases));
  }
  return answers;
}

/** Those with a dead letter take a transaction each. */
async function settleJobs(
  mongo: Mongo,
  settlements: readonly Settlement[],
): Promise<readonly SettleAnswer[]> {
  const answers = new Map<Settlement, SettleAnswer>();
  const plain = settlements.filter(({ letter }) => letter === undefined);
  if (plain.length > 0) {
    const settled = await settlePlain(mongo, plain);
    for (const [at, settlement] of plain.entries()) answers.set(settlement, settled[at] as SettleAnswer);
  }
  for (const settlement of settlements) {
    const { letter } = settlement;
    if (letter !== undefined) answers.set(settlement, await settleWithLetter(mongo, settlement, letter));
  }
  return settlements.map((settlement) => answers.get(settlement) as SettleAnswer);
}

/** If all were written, no read is needed; otherwise, a read tells which were not. */
async function settlePlain(
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

type Letter = NonNullable<Settlement['letter']>;

/**
 * The settlement and its dead letter in one transaction, the settlement first: the letter exists if and only if its
 * precondition held, and a repeat after a lost answer finds nothing to write. A standalone server has no transactions.
 */
async function settleWithLetter(mongo: Mongo, settlement: Settlement, letter: Letter): Promise<SettleAnswer> {
  const { by } = settlement;
  const answer = await run('settle', async () => {
    try {
      const written = mongo.transactions
        ? await writeTogether(mongo, settlement, letter)
        : await writeInTurn(mongo, settlement, letter);
      return written ? 'settled' : undefined;
    } catch (error) {
      // Another transaction holds the job.
      if (isConflict(error)) return by === 'reclaimer' ? 'lost' : 'blocked';
      if (isTransient(error) || !isUnstorable(error)) throw error;
      return 'refused';
    }
  });
  if (answer === undefined) return (await settlePlain(mongo, [settlement]))[0] as SettleAnswer;
  const { name, limitKey: key, nextRunAt: from } = letter;
  if (answer === 'settled' && key !== undefined) await markKeys(mongo, [{ name, key, from }]);
  if (answer === 'settled') await send(mongo, { kind: 'jobs', due: [[letter.name, 1]] });
  return answer;
}

const documentOf = (mongo: Mongo, letter: Letter): JobDocument =>
  toDocument({ ...letter, ownId: true }, mongo.sharded, mongo.wakes !== undefined);

/** Returns false if the precondition does not hold, or if the letter is there already; nothing is written then. */
async function writeTogether(mongo: Mongo, settlement: Settlement, letter: Letter): Promise<boolean> {
  return mongo.client.withSession(async (session) => {
    session.startTransaction({ readConcern: { level: 'snapshot' }, writeConcern: { w: 'majority' } });
    try {
      const written = (await writeIn(mongo, settlement, session)) === 1;
      if (written) await mongo.jobs.insertOne(documentOf(mongo, letter), { session });
      if (written) await session.commitTransaction();
      else await session.abortTransaction();
      return written;
    } catch (error) {
      if (session.inTransaction()) await session.abortTransaction().catch(() => undefined);
      if (isDuplicate(error)) return false;
      throw error;
    }
  });
}

/**
 * Without a transaction the letter goes first: a crash in between leaves a job that will fail again under the same
 * attempt, and so under the same letter. Returns false if the job is not held any more.
 */
async function writeInTurn(mongo: Mongo, settlement: Settlement, letter: Letter): Promise<boolean> {
  const isHeld = (await mongo.jobs.countDocuments(preconditionOf(mongo, [settlement]))) === 1;
  if (!isHeld) return false;
  await mongo.jobs.insertOne(documentOf(mongo, letter)).catch((error: unknown) => {
    if (!isDuplicate(error)) throw error;
  });
  return (await writeAll(mongo, [settlement])) === 1;
}

/** One settlement cannot be written; the others must not wait for it. */
async function oneByOne(mongo: Mongo, settlements: readonly Settlement[]): Promise<SettleAnswer[]> {
  const answers: SettleAnswer[] = [];
  for (const settlement of settlements) answers.push(...(await settlePlain(mongo, [settlement])));
  return answers;
}

/** Tells whose settlement was written, whose work was lost, and whose changed meanwhile. */
async function judge(mongo: Mongo, settlements: readonly Settlement[]): Promise<SettleAnswer[]> {
  const filter = { _id: { $in: settlements.map(({ lease }) => lease.key as Key) } };
  const options = { projection: { leaseToken: 1, status: 1, lockedAt: 1, claimedBy: 1 } };
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
  if ((row['claimedBy'] ?? undefined) !== lease.holder) return false;
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
  needOpenTransaction(session);
  await noteSession(mongo, settlement.lease.token, session);
  freeAfter(mongo, settlement, session);
  const [kept = settlement] = mongo.watching.size > 0 ? keptForWatchers([settlement]) : [];
  const isSettled = (await writeIn(mongo, kept, session)) === 1;
  const { releases } = settlement;
  if (isSettled && releases !== undefined) await (await loadExisting()).release(mongo, releases, { session });
  return isSettled ? 'settled' : 'lost';
}

/** Returns how many jobs it wrote. */
async function writeIn(mongo: Mongo, settlement: Settlement, session: ClientSession): Promise<number> {
  const filter = preconditionOf(mongo, [settlement]);
  if (settlement.remove === true) return (await mongo.jobs.deleteMany(filter, { session })).deletedCount;
  return (await mongo.jobs.updateMany(filter, settlePipeline([settlement]), { session })).matchedCount;
}
