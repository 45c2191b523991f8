import { ObjectId, type Document } from 'mongodb';
import { byJobOrder } from '../../../core/records/claim-order.js';
import type { JobRecord } from '../../../core/records/job.js';
import { fairShare } from '../../../core/batches/fair-share.js';
import {
  isPausedIn,
  type ClaimAnswer,
  type ClaimRequest,
  type Hint,
  type Instance,
  type NameLimit,
} from '../../../store/port.js';
import { isSilent } from '../../cluster/silent-writers.js';
import { BSON_OPTIONS, literal, run, type Mongo } from '../../context.js';
import { hash, SCHEMA_VERSION, toRecord, toText, type JobDocument, type Key } from '../document.js';
import { aggregateExact, bytesOf, findExact } from '../../exact.js';
import { claimEachKeyed, keyedOf, together, withoutKeyed, type Turns } from '../../limits/keys/claim.js';
import { keyedJobs } from './keyed.js';
import { takeEach, takeMany } from './take.js';
import { sliceOf, windowOf, type Skips, type Windows } from '../../slices.js';
import { clusterPipeline, readCluster } from './peek.js';

/** The ids at the head of one name's queue, or behind the first `skip` of it, in order, as one row. */
export function headPipeline(name: string, count: number, skip = 0): Document[] {
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
    ...(skip === 0 ? [] : [{ $skip: skip }]),
    { $limit: count },
    { $group: { _id: literal(name), ids: { $push: '$_id' } } },
  ];
}

/** Limits each name to twice its fair share: candidates that are read and not taken are wasted work. */
function fairLimits({ limits, total }: ClaimRequest): ReadonlyMap<string, NameLimit> {
  const most = 2 * Math.ceil(total / limits.size);
  return new Map([...limits].map(([name, limit]) => [name, { ...limit, max: Math.min(limit.max, most) }]));
}

function headsPipeline(mongo: Mongo, request: ClaimRequest, skips: Skips): Document[] {
  const [first = [], ...rest] = [...fairLimits(request)].map(([name, limit]) =>
    headPipeline(name, windowOf(limit), skips.get(name)),
  );
  return [
    ...first,
    ...rest.map((pipeline) => ({ $unionWith: { coll: mongo.jobs.collectionName, pipeline } })),
    { $unionWith: { coll: mongo.globals.collectionName, pipeline: clusterPipeline } },
  ];
}

const numberOf = (id: Key): number =>
  id instanceof ObjectId ? (id.id[11] ?? 0) ^ (id.id[10] ?? 0) : hash(toText(id));

/** Reads the heads, and the cluster. If all windows are behind the ends of their queues, reads from the beginnings. */
async function readHeads(
  mongo: Mongo,
  windows: Windows,
  request: ClaimRequest,
): Promise<{ rows: Document[]; skips: Skips }> {
  const read = (skips: Skips): Promise<Document[]> => {
    const pipeline = headsPipeline(mongo, request, skips);
    return aggregateExact(mongo.jobs, pipeline, { hint: 'tidemill_claim' }, ['ids'], BSON_OPTIONS).toArray();
  };
  const skips = windows.choose(fairLimits(request));
  const rows = await read(skips);
  const found = new Set(rows.filter((row) => row['ids'] !== undefined).map((row) => row['_id'] as string));
  if (!windows.missed(skips, found)) return { rows, skips };
  return { rows: await read(new Map()), skips: new Map() };
}

interface Candidates {
  readonly ids: Key[];
  /** How many of each name. */
  readonly shares: ReadonlyMap<string, number>;
  readonly answer: Omit<ClaimAnswer, 'jobs'>;
}

/** Statement 1: reads candidates of each name and picks a fair share, without hinted jobs, which are being taken. */
async function candidates(
  mongo: Mongo,
  windows: Windows,
  request: ClaimRequest,
  hinted: readonly Hint[],
): Promise<Candidates> {
  const { rows, skips } = await readHeads(mongo, windows, request);
  const cluster = readCluster(rows);
  const except = new Set(hinted.map(({ key }) => toText(key)));
  const heads = new Map(
    rows
      .filter((row) => row['ids'] !== undefined)
      .map((row) => [row['_id'] as string, (row['ids'] as Key[]).filter((id) => !except.has(toText(id)))]),
  );
  const open = [...fairLimits(request)].filter(
    ([name]) => heads.has(name) && !isPausedIn(cluster.paused, name),
  );
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
    return (skips.get(name) ?? 0) > 0 || seen > (shares.get(name) ?? 0) || seen >= windowOf(limit);
  });
  return { ids, shares, answer: { asked: ids.length, more, cluster } };
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

/** What claims remember from one to the next. */
export interface ClaimMemory {
  readonly windows: Windows;
  readonly turns: Turns;
}

interface Taken {
  readonly rows: readonly JobDocument[];
  readonly answer: Omit<ClaimAnswer, 'jobs'>;
}

/** Takes jobs of names whose keys do not matter. */
async function claimPlain(mongo: Mongo, windows: Windows, request: ClaimRequest): Promise<Taken> {
  const hinted = mongo.sharded ? [] : usable(request);
  // Wait for both to end. If one fails, the caller can then reliably read what the token holds.
  const [heads, early] = await Promise.allSettled([
    candidates(mongo, windows, request, hinted),
    takeEach(
      mongo,
      hinted.map(({ key }) => key as Key),
      request,
    ),
  ]);
  if (heads.status === 'rejected') throw heads.reason;
  if (early.status === 'rejected') throw early.reason;
  const { ids, shares, answer } = heads.value;
  const take = ids.length <= FEW && !mongo.sharded ? takeEach : takeMany;
  const rest = ids.length === 0 ? [] : await take(mongo, ids, request);
  for (const [name, asked] of shares) {
    const took = rest.filter((job) => job.name === name).length;
    windows.learn(name, request.limits.get(name) as NameLimit, asked, took);
  }
  return { rows: [...early.value, ...rest], answer: { ...answer, asked: answer.asked + early.value.length } };
}

export async function claim(
  mongo: Mongo,
  { windows, turns }: ClaimMemory,
  request: ClaimRequest,
): Promise<ClaimAnswer> {
  return run('claim', async () => {
    const keyed = keyedOf(request).map(([name, limit]) => ({ work: keyedJobs(mongo, name), limit }));
    const parts: Taken[] = keyed.length === 0 ? [] : await claimEachKeyed(mongo, turns, request, keyed);
    const took = parts.reduce((sum, { rows }) => sum + rows.length, 0);
    const rest = keyed.length === 0 ? request : withoutKeyed(request, took);
    if (rest.limits.size > 0 && rest.total > 0) parts.push(await claimPlain(mongo, windows, rest));
    const rows = parts.flatMap((part) => part.rows);
    if (rows.some((job) => isSilent(job['wake']))) mongo.silent.heard();
    const jobs = rows.map((row) => ({ ...toRecord(row), ...bytesOf(row) }));
    return { jobs: jobs.sort(byJobOrder), ...together(parts.map(({ answer }) => answer)) };
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
