/** The write of a claim, for jobs of names with and without limits per key. */
import type { Document } from 'mongodb';
import type { Claimant, ClaimRequest } from '../../../store/port.js';
import { BSON_OPTIONS, literal, type Mongo } from '../../context.js';
import { exactRow, findExact, RAW } from '../../exact.js';
import { SCHEMA_VERSION, type JobDocument, type Key } from '../document.js';

/** Due and not expired. The search for candidates reads index keys only, which do not tell what has expired. */
const mayStart: Document = {
  $and: [
    { $lte: ['$nextRunAt', '$$NOW'] },
    { $or: [{ $ne: [{ $type: '$startBy' }, 'date'] }, { $gt: ['$startBy', '$$NOW'] }] },
  ],
};

/**
 * Names whose permits end: none of their work is taken after that. Undefined: no name's do. `field` is a path to the name.
 */
export function inTime(
  { limits }: Pick<ClaimRequest, 'limits'>,
  field: '$name' | '$task' = '$name',
): Document | undefined {
  const ends = [...limits].flatMap(([name, { notAfter }]) =>
    notAfter === undefined ? [] : [{ name, notAfter }],
  );
  if (ends.length === 0) return undefined;
  const late = ends.map(({ name, notAfter }) => ({
    $and: [{ $eq: [field, literal(name)] }, { $gt: ['$$NOW', notAfter] }],
  }));
  return { $not: [{ $or: late }] };
}

/** Every precondition is in the write: still pending, still due, not expired, still of the known version, not after its end. */
function takeable(also?: Document): Document {
  return {
    status: 'pending',
    v: SCHEMA_VERSION,
    $expr: also === undefined ? mayStart : { $and: [mayStart, also] },
  };
}

function taken(request: Claimant): Document {
  return {
    $set: {
      status: 'processing',
      claimedBy: request.instance.instanceId,
      leaseToken: request.token,
      heartbeatInterval: request.heartbeatMs,
    },
    $currentDate: { lockedAt: true, lastHeartbeat: true, updatedAt: true },
  };
}

interface TakeOptions {
  /** What else must be true, as an expression. Default: no name is late. */
  readonly also?: Document;
  readonly maxTimeMS?: number;
}

/** Takes the candidates in one statement, then reads what the token holds: that, and nothing else, was claimed. */
export async function takeMany(
  mongo: Mongo,
  ids: readonly Key[],
  request: ClaimRequest,
  { also = inTime(request), ...limit }: TakeOptions = {},
): Promise<JobDocument[]> {
  const { matchedCount } = await mongo.jobs.updateMany(
    { _id: { $in: [...ids] }, ...takeable(also) },
    taken(request),
    limit,
  );
  if (matchedCount === 0) return [];
  // A batch size above the number of rows saves the round trip that would fetch the end of the cursor.
  const filter = { _id: { $in: [...ids] }, leaseToken: request.token, status: 'processing' as const };
  return findExact(mongo.jobs, filter, { batchSize: ids.length + 1 }, BSON_OPTIONS).toArray();
}

/** Takes each by itself, which returns its document: two round trips of a claim instead of three. */
export async function takeEach(
  mongo: Mongo,
  ids: readonly Key[],
  request: ClaimRequest,
  { also = inTime(request), ...limit }: TakeOptions = {},
): Promise<JobDocument[]> {
  const takes = await Promise.allSettled(
    ids.map((_id) =>
      mongo.jobs.findOneAndUpdate({ _id, ...takeable(also) }, taken(request), {
        returnDocument: 'after',
        ...RAW,
        ...limit,
      }),
    ),
  );
  // All writes have ended by now. If one failed, the caller can reliably read what the token holds.
  return takes.flatMap((take) => {
    if (take.status === 'rejected') throw take.reason;
    return take.value === null ? [] : [exactRow(BSON_OPTIONS)(take.value) as JobDocument];
  });
}
