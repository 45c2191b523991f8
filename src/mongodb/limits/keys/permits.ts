import type { AnyBulkWriteOperation, Document } from 'mongodb';
import type { KeyRule } from '../../../store/port.js';
import { literal, type GlobalDocument, type Mongo } from '../../context.js';
import { findExact } from '../../exact.js';
import {
  CLAIM_MS,
  keyId,
  markKeys,
  mostOf,
  placed,
  SURE_MS,
  withoutPermits,
  type KeyDocument,
  type PermitDocument,
} from './document.js';
import { freeKeys } from './free.js';
import type { KeyedWork } from './work.js';

/** The text of a permit: its token has no space. */
const permitText = ({ idText }: KeyedWork, token: unknown, job: unknown): string =>
  `${String(token)} ${idText(job)}`;

/** A key with the server's time at which it was read. */
export type SeenKey = Pick<KeyDocument, '_id' | 'permits' | 'rev'> & { readonly seen: Date };

/**
 * Compares the permits of keys with the jobs, which tell the truth. A permit goes if its job does not run under its token,
 * and if that was read when no write of its claim could take the job any more. Returns whether a key was freed.
 */
export async function checkPermits(
  mongo: Mongo,
  work: KeyedWork,
  keys: readonly SeenKey[],
): Promise<boolean> {
  if (keys.length === 0) return false;
  const running = await runningUnder(
    work,
    keys.flatMap(({ permits }) => permits),
  );
  let isFreed = false;
  const operations = keys.map(({ _id, permits, rev, seen }): AnyBulkWriteOperation<GlobalDocument> => {
    const isSure = ({ until }: PermitDocument): boolean => until.getTime() + SURE_MS < seen.getTime();
    const over = permits.filter((one) => isSure(one) && !running.has(permitText(work, one.token, one.job)));
    isFreed ||= over.length > 0;
    const next = permits.every(isSure) ? null : { $add: ['$$NOW', CLAIM_MS] };
    // Permits that were written since the read come with their own time to compare them.
    const check = { $cond: [{ $eq: ['$rev', rev] }, next, '$check'] };
    return { updateOne: { filter: { _id }, update: [...withoutPermits(over), { $set: { check } }, placed] } };
  });
  await mongo.globals.bulkWrite(operations, { ordered: false });
  return isFreed;
}

/** The permits whose jobs run under their token now. */
async function runningUnder(
  work: KeyedWork,
  permits: readonly Pick<PermitDocument, 'token' | 'job'>[],
): Promise<ReadonlySet<string>> {
  if (permits.length === 0) return new Set();
  const rows = await findExact(
    work.collection,
    { _id: { $in: permits.map(({ job }) => job) as never[] }, ...work.running },
    { projection: { leaseToken: 1 } },
    work.reading,
  ).toArray();
  return new Set(rows.map((row) => permitText(work, row['leaseToken'], row['_id'])));
}

interface RunningJob {
  readonly _id: unknown;
  readonly limitKey: string;
  readonly leaseToken: string;
  readonly lockedAt: Date;
}

/** Running jobs of a name that have a key. */
async function runningOf(work: KeyedWork): Promise<readonly RunningJob[]> {
  const rows = (await findExact(
    work.collection,
    { ...work.named, ...work.running },
    {
      hint: work.hints.byName,
      projection: { limitKey: 1, leaseToken: 1, lockedAt: 1 },
    },
    work.reading,
  ).toArray()) as unknown as { readonly [field in keyof RunningJob]?: unknown }[];
  return rows.filter(
    (row): row is RunningJob =>
      typeof row.limitKey === 'string' && typeof row.leaseToken === 'string' && row.lockedAt instanceof Date,
  );
}

/** The keys of a name, and the server's time at which the read of them began. */
export interface KnownKeys {
  readonly byKey: ReadonlyMap<string, Pick<KeyDocument, 'permits'>>;
  readonly seen: Date;
}

/**
 * Jobs that were claimed before their name had a limit per key, or by an older process, count as well. A claim by keys
 * writes permits before it takes jobs, so a job that was taken before the keys were read, and has no permit among them,
 * was taken without one. Without `known`, all running jobs are compared with the permits by the writes themselves.
 */
export async function addPermits(
  mongo: Mongo,
  work: KeyedWork,
  rule: KeyRule,
  known?: KnownKeys,
): Promise<void> {
  const most = mostOf(rule);
  if (most === Infinity) return;
  const { owner: name } = work;
  const jobs = (await runningOf(work)).filter(({ _id, limitKey, leaseToken, lockedAt }) => {
    if (known === undefined) return true;
    const permits = known.byKey.get(limitKey)?.permits ?? [];
    const text = permitText(work, leaseToken, _id);
    return lockedAt < known.seen && !permits.some(({ token, job }) => permitText(work, token, job) === text);
  });
  if (jobs.length === 0) return;
  const unknown = jobs.filter(({ limitKey }) => known?.byKey.has(limitKey) !== true);
  await markKeys(
    mongo,
    unknown.map(({ limitKey: key }) => ({ name, key, from: '$$NOW' as const })),
  );
  const operations = jobs.map(({ _id, limitKey, leaseToken }): AnyBulkWriteOperation<GlobalDocument> => {
    const permit = { token: leaseToken, job: _id };
    const filter = { _id: keyId({ name, key: limitKey }), permits: { $not: { $elemMatch: permit } } };
    return { updateOne: { filter, update: permitPipeline(permit, most) } };
  });
  await mongo.globals.bulkWrite(operations, { ordered: false });
  await freeEnded(mongo, work, jobs);
}

/** Takes back the permits of jobs that were settled between the read of them and the write: their ends freed nothing. */
async function freeEnded(mongo: Mongo, work: KeyedWork, jobs: readonly RunningJob[]): Promise<void> {
  const running = await runningUnder(
    work,
    jobs.map(({ _id, leaseToken }) => ({ token: leaseToken, job: _id })),
  );
  const ended = jobs.filter(({ _id, leaseToken }) => !running.has(permitText(work, leaseToken, _id)));
  await freeKeys(
    mongo,
    ended.map(({ _id, limitKey: key, leaseToken: token, lockedAt }) => ({
      name: work.owner,
      key,
      lease: { key: _id, id: work.idText(_id), token, lockedAt },
    })),
  );
}

const permitPipeline = (permit: Pick<PermitDocument, 'token' | 'job'>, most: number): Document[] => [
  {
    $set: {
      permits: {
        $concatArrays: ['$permits', [{ ...literalFields(permit), until: { $add: ['$$NOW', CLAIM_MS] } }]],
      },
      check: { $add: ['$$NOW', CLAIM_MS + SURE_MS] },
      rev: { $add: ['$rev', 1] },
    },
  },
  { $set: { full: { $gte: [{ $size: '$permits' }, most] } } },
  placed,
];

const literalFields = (fields: object): Document =>
  Object.fromEntries(Object.entries(fields).map(([field, value]) => [field, literal(value)]));
