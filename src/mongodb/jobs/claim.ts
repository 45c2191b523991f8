import { ObjectId, type Document } from 'mongodb';
import { byJobOrder } from '../../core/records/claim-order.js';
import type { JobRecord } from '../../core/records/job.js';
import { fairShare } from '../../core/batches/fair-share.js';
import type { Claimant, ClaimAnswer, ClaimRequest, Hint, Instance, NameLimit } from '../../store/port.js';
import { BSON_OPTIONS, literal, run, type Mongo } from '../context.js';
import { hash, SCHEMA_VERSION, toRecord, toText, type JobDocument, type Key } from './document.js';
import { aggregateExact, exactRow, findExact, RAW } from '../exact.js';
import { sliceOf, windowOf } from '../slices.js';
import { clusterPipeline, readCluster } from './peek.js';

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

/** Limits each name to twice its fair share: candidates that are read and not taken are wasted work. */
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

const numberOf = (id: Key): number =>
  id instanceof ObjectId ? (id.id[11] ?? 0) ^ (id.id[10] ?? 0) : hash(toText(id));

/** Statement 1: reads candidates of each name and picks a fair share, without hinted jobs, which are being taken. */
async function candidates(
  mongo: Mongo,
  request: ClaimRequest,
  hinted: readonly Hint[],
): Promise<{ ids: Key[]; answer: Omit<ClaimAnswer, 'jobs'> }> {
  const heading = { hint: 'tidemill_claim' };
  const rows = await aggregateExact(
    mongo.jobs,
    headsPipeline(mongo, request),
    heading,
    ['ids'],
    BSON_OPTIONS,
  ).toArray();
  const cluster = readCluster(rows, mongo.clock.now());
  const except = new Set(hinted.map(({ key }) => toText(key)));
  const heads = new Map(
    rows
      .filter((row) => row['ids'] !== undefined)
      .map((row) => [row['_id'] as string, (row['ids'] as Key[]).filter((id) => !except.has(toText(id)))]),
  );
  const open = [...fairLimits(request)].filter(([name]) => heads.has(name) && !cluster.paused.has(name));
  const picked = new Map(
    open.map(([name, limit]) => {
      const max = limit.max - hinted.filter((hint) => hint.name === name).length;
      return [name, sliceOf(heads.get(name) ?? [], { ...limit, max }, numberOf)];
    }),
  );
  const offers = new Map([...picked].map(([name, ids]) => [name, ids.length]));
  const shares = fairShare(offers, request.total - hinted.length);
  const ids = [...picked].flatMap(([name, offered]) => offered.slice(0, shares.get(name) ?? 0));
  const more = open.some(([name, limit]) => {
    const seen = heads.get(name)?.length ?? 0;
    return seen > (shares.get(name) ?? 0) || seen >= windowOf(limit);
  });
  return { ids, answer: { asked: ids.length, more, cluster } };
}

/** Up to this many jobs are taken one by one, each returning its document: two round trips instead of three. */
const FEW = 4;

/** Returns the hints whose names may be claimed, within the limits. */
function usable({ hints = [], limits, total }: ClaimRequest): readonly Hint[] {
  const room = new Map([...limits].map(([name, { max }]) => [name, max]));
  return hints.slice(0, Math.min(total, FEW)).filter(({ name }) => {
    const left = room.get(name) ?? 0;
    room.set(name, left - 1);
    return left > 0;
  });
}

/** Every precondition is in the write: still pending, still due, still of the known version. */
const takeable = { status: 'pending' as const, v: SCHEMA_VERSION, $expr: { $lte: ['$nextRunAt', '$$NOW'] } };

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

/** Takes the candidates in one statement, then reads what the token holds: that, and nothing else, was claimed. */
async function takeMany(mongo: Mongo, ids: readonly Key[], request: ClaimRequest): Promise<JobDocument[]> {
  const { matchedCount } = await mongo.jobs.updateMany(
    { _id: { $in: [...ids] }, ...takeable },
    taken(request),
  );
  if (matchedCount === 0) return [];
  // A batch size above the number of rows saves the round trip that would fetch the end of the cursor.
  const filter = { _id: { $in: [...ids] }, leaseToken: request.token, status: 'processing' as const };
  return findExact(mongo.jobs, filter, { batchSize: ids.length + 1 }, BSON_OPTIONS).toArray();
}

async function takeEach(mongo: Mongo, ids: readonly Key[], request: Claimant): Promise<JobDocument[]> {
  const takes = await Promise.allSettled(
    ids.map((_id) =>
      mongo.jobs.findOneAndUpdate({ _id, ...takeable }, taken(request), { returnDocument: 'after', ...RAW }),
    ),
  );
  // All writes have ended by now. If one failed, the caller can reliably read what the token holds.
  return takes.flatMap((take) => {
    if (take.status === 'rejected') throw take.reason;
    return take.value === null ? [] : [exactRow(BSON_OPTIONS)(take.value) as JobDocument];
  });
}

export async function claim(mongo: Mongo, request: ClaimRequest): Promise<ClaimAnswer> {
  return run('claim', async () => {
    const hinted = mongo.sharded ? [] : usable(request);
    // Wait for both to end. If one fails, the caller can then reliably read what the token holds.
    const [heads, early] = await Promise.allSettled([
      candidates(mongo, request, hinted),
      takeEach(
        mongo,
        hinted.map(({ key }) => key as Key),
        request,
      ),
    ]);
    if (heads.status === 'rejected') throw heads.reason;
    if (early.status === 'rejected') throw early.reason;
    const { ids, answer } = heads.value;
    const take = ids.length <= FEW && !mongo.sharded ? takeEach : takeMany;
    const rest = ids.length === 0 ? [] : await take(mongo, ids, request);
    const asked = answer.asked + early.value.length;
    return { jobs: [...early.value, ...rest].map(toRecord).sort(byJobOrder), ...answer, asked };
  });
}

export async function claimedUnder(
  mongo: Mongo,
  instance: Instance,
  token: string,
): Promise<readonly JobRecord[]> {
  const filter = { claimedBy: instance.instanceId, status: 'processing' as const, leaseToken: token };
  return run('read a claim again', async () => {
    const found = await findExact(mongo.jobs, filter, { hint: 'tidemill_held' }, BSON_OPTIONS).toArray();
    return found.map(toRecord).sort(byJobOrder);
  });
}
