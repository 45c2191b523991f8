import { ObjectId, type Document } from 'mongodb';
import type { JobRecord } from '../core/job.js';
import { fairShare } from '../core/share.js';
import type { ClaimAnswer, ClaimRequest, Instance, NameLimit } from '../store/port.js';
import { literal, run, type Mongo } from './context.js';
import { hash, SCHEMA_VERSION, toRecord, toText, type JobDocument, type Key } from './document.js';
import { clusterPipeline, readCluster } from './look.js';

/** More slices than this would read too much of the queue's head for one claim; further instances share them. */
const MOST_SLICES = 4;

const slicesOf = (limit: NameLimit): number => Math.min(limit.of, MOST_SLICES);

/** The ids at the head of one name's queue, in order, as one row. */
export function headPipeline(name: string, count: number): Document[] {
  return [
    {
      $match: {
        v: SCHEMA_VERSION,
        name: { $eq: name },
        status: 'pending',
        $expr: { $lte: ['$nextRunAt', '$$NOW'] },
      },
    },
    { $sort: { priority: -1, nextRunAt: 1, _id: 1 } },
    { $limit: count },
    { $group: { _id: literal(name), ids: { $push: '$_id' } } },
  ];
}

/** No name needs to show more than twice its fair share: what is read and not taken is read in vain. */
function fairLimits({ limits, total }: ClaimRequest): ReadonlyMap<string, NameLimit> {
  const most = 2 * Math.ceil(total / limits.size);
  return new Map([...limits].map(([name, limit]) => [name, { ...limit, max: Math.min(limit.max, most) }]));
}

function headsPipeline(mongo: Mongo, request: ClaimRequest): Document[] {
  const [first = [], ...rest] = [...fairLimits(request)].map(([name, limit]) =>
    headPipeline(name, windowOf(limit)),
  );
  return [
    ...first,
    ...rest.map((pipeline) => ({ $unionWith: { coll: mongo.jobs.collectionName, pipeline } })),
    { $unionWith: { coll: mongo.globals.collectionName, pipeline: clusterPipeline } },
  ];
}

/** Wider than the slices together, so that an uneven one is still likely to be full. */
const windowOf = (limit: NameLimit): number =>
  slicesOf(limit) === 1 ? limit.max : Math.ceil(limit.max * slicesOf(limit) * 1.25);

/** Which slice an id belongs to: the same for everybody, whatever part of the queue they see. */
function sliceOf(id: Key, slices: number): number {
  const number = id instanceof ObjectId ? (id.id[11] ?? 0) ^ (id.id[10] ?? 0) : hash(toText(id));
  return number % slices;
}

/**
 * This instance's slice of the head, in order. Slices are by id and not by place: others see the head a moment
 * earlier or later. Others' work is touched only where the end of the queue is in sight, or nothing of the own is.
 */
function pick(ids: readonly Key[], limit: NameLimit): Key[] {
  const slices = slicesOf(limit);
  if (slices === 1) return ids.slice(0, limit.max);
  const rank = limit.rank % slices;
  const own = ids.filter((id) => sliceOf(id, slices) === rank).slice(0, limit.max);
  if (own.length > 0 && ids.length >= windowOf(limit)) return own;
  const others = ids.filter((id) => sliceOf(id, slices) !== rank);
  while (own.length < limit.max && others.length > 0) {
    own.push(...others.splice(Math.floor(Math.random() * others.length), 1));
  }
  return own;
}

/** Statement 1: candidates of each name, then a fair share of them by turns. */
async function candidates(
  mongo: Mongo,
  request: ClaimRequest,
): Promise<{ ids: Key[]; answer: Omit<ClaimAnswer, 'jobs'> }> {
  const rows = await mongo.jobs
    .aggregate(headsPipeline(mongo, request), { hint: 'tidemill_claim' })
    .toArray();
  const cluster = readCluster(rows, mongo.clock.now());
  const heads = new Map(
    rows.filter((row) => row['ids'] !== undefined).map((row) => [row['_id'] as string, row['ids'] as Key[]]),
  );
  const open = [...fairLimits(request)].filter(([name]) => heads.has(name) && !cluster.paused.has(name));
  const picked = new Map(open.map(([name, limit]) => [name, pick(heads.get(name) ?? [], limit)]));
  const shares = fairShare(new Map([...picked].map(([name, ids]) => [name, ids.length])), request.total);
  const ids = [...picked].flatMap(([name, offered]) => offered.slice(0, shares.get(name) ?? 0));
  const more = open.some(([name, limit]) => {
    const seen = heads.get(name)?.length ?? 0;
    return seen > (shares.get(name) ?? 0) || seen >= windowOf(limit);
  });
  return { ids, answer: { asked: ids.length, more, cluster } };
}

/** Up to this many are taken one by one, each with its document as the answer: two round trips instead of three. */
const FEW = 4;

/** Every precondition is inside the write: still pending, still due, still of a known version. */
const takeable = { status: 'pending' as const, v: SCHEMA_VERSION, $expr: { $lte: ['$nextRunAt', '$$NOW'] } };

function taken(request: ClaimRequest): Document {
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

/** Takes what was found, in one statement, and reads what the token holds: that, and nothing else, was claimed. */
async function takeMany(mongo: Mongo, ids: readonly Key[], request: ClaimRequest): Promise<JobDocument[]> {
  const { matchedCount } = await mongo.jobs.updateMany(
    { _id: { $in: [...ids] }, ...takeable },
    taken(request),
  );
  if (matchedCount === 0) return [];
  // A batch larger than the answer spares the round trip that would ask for the end of the cursor.
  const filter = { _id: { $in: [...ids] }, leaseToken: request.token, status: 'processing' as const };
  return mongo.jobs.find(filter, { batchSize: ids.length + 1 }).toArray();
}

async function takeFew(mongo: Mongo, ids: readonly Key[], request: ClaimRequest): Promise<JobDocument[]> {
  const takes = await Promise.allSettled(
    ids.map((_id) =>
      mongo.jobs.findOneAndUpdate({ _id, ...takeable }, taken(request), { returnDocument: 'after' }),
    ),
  );
  // All of them have ended by now, so what the token holds can be read in peace where one has failed.
  return takes.flatMap((take) => {
    if (take.status === 'rejected') throw take.reason;
    return take.value ?? [];
  });
}

export async function claim(mongo: Mongo, request: ClaimRequest): Promise<ClaimAnswer> {
  return run('claim', async () => {
    const { ids, answer } = await candidates(mongo, request);
    if (ids.length === 0) return { jobs: [], ...answer };
    const take = ids.length <= FEW && !mongo.sharded ? takeFew : takeMany;
    return { jobs: inOrder((await take(mongo, ids, request)).map(toRecord)), ...answer };
  });
}

/** The order that the claim index has within a name; an `$in` does not keep it. */
function inOrder(jobs: JobRecord[]): JobRecord[] {
  return jobs.sort(
    (a, b) =>
      b.priority - a.priority || a.nextRunAt.getTime() - b.nextRunAt.getTime() || (a.id < b.id ? -1 : 1),
  );
}

export async function claimedUnder(
  mongo: Mongo,
  instance: Instance,
  token: string,
): Promise<readonly JobRecord[]> {
  const filter = { claimedBy: instance.instanceId, status: 'processing' as const, leaseToken: token };
  return run('read a claim again', async () =>
    inOrder((await mongo.jobs.find(filter, { hint: 'tidemill_held' }).toArray()).map(toRecord)),
  );
}
