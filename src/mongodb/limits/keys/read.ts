/** What a claim reads of the keys of a name: one statement, and a second one if keys run out of due jobs. */
import type { Document } from 'mongodb';
import { NEVER } from '../../../core/records/job.js';
import type { ClusterBrief, KeyRule } from '../../../store/port.js';
import type { Mongo } from '../../context.js';
import { aggregateExact } from '../../exact.js';
import { ANY_DATE } from '../../indexes.js';
import { ruleId, type KeyDocument } from './document.js';
import type { SeenKey } from './permits.js';
import type { KeyedWork } from './work.js';

/** An offered key, with the jobs that come first, due or not, and their due times. */
export interface OfferedKey extends KeyDocument {
  readonly ids: readonly unknown[];
  readonly dues: readonly Date[];
  /** The earliest due time that is still to come; absent if enough jobs are due. */
  readonly next?: Date;
}

export interface KeysRead {
  readonly offered: readonly OfferedKey[];
  /** Blocked keys whose permits are to be compared with the jobs. */
  readonly unchecked: readonly SeenKey[];
  /** A due job waits for an end. */
  readonly isBlocked: boolean;
  /** When the next key is offered, and whether due jobs wait for that. */
  readonly next?: { readonly at: Date; readonly waits: boolean };
  /** Pending jobs without a key, of a producer that knows the name only. */
  readonly keyless: readonly unknown[];
  /** The rule by which the keys stand in their index; absent: no claim has been made yet. */
  readonly rule?: string;
  readonly cluster: ClusterBrief;
}

/** How many blocked keys one claim compares. */
const MOST_UNCHECKED = 20;
/** How many of the newest jobs a claim looks through for those without a key; `repairKeys` finds all others. */
const NEWEST = 20;
const PRIORITIES = Array.from({ length: 21 }, (_none, at) => at - 10);

/** Pending work of a name that has a key; the indexes of keys begin so. */
export const pendingOf = ({ ours }: Pick<KeyedWork, 'ours'>): Document => ({
  ...ours,
  status: 'pending',
  limitKey: { $type: 'string' },
});

/** What the statements about keys need to know of the work. */
export type KeyedQuery = Pick<KeyedWork, 'owner' | 'collection' | 'due' | 'ours' | 'isPrioritised'>;

/** The first jobs of a key in the order of the rule: those that may start, and under `hold` the one that holds it. */
export function firstOf(
  work: KeyedQuery,
  { order, whileRetrying = 'hold' }: KeyRule,
  count: number,
): Document[] {
  const { due, isPrioritised } = work;
  const isDue = { $lte: [`$${due}`, '$$NOW'] };
  // A successor that waits for its predecessor holds nothing.
  const isHolding = { $and: [{ $eq: [{ $type: '$limitOrder' }, 'string'] }, { $lt: [`$${due}`, NEVER] }] };
  const isCounted = order === 'fifo' && whileRetrying === 'hold' ? { $or: [isDue, isHolding] } : isDue;
  return [
    { $match: { ...pendingOf(work), $expr: isCounted } },
    {
      $sort:
        order === undefined
          ? { ...(isPrioritised ? { priority: -1 } : {}), [due]: 1, _id: 1 }
          : // A missing order is less than any text: due jobs without one come first.
            { limitOrder: 1, [due]: 1, _id: 1 },
    },
    { $limit: count },
    { $project: { _id: 1, [due]: 1 } },
  ];
}

/**
 * The earliest job that was not due at the time of the first read; one that became due since is among them. The list of
 * all priorities lets the server merge 21 ranges of an index.
 */
const nextOf = (work: KeyedQuery, now: Date): Document[] => [
  {
    $match: {
      ...pendingOf(work),
      ...(work.isPrioritised ? { priority: { $in: PRIORITIES } } : {}),
      [work.due]: { $gt: now },
    },
  },
  { $sort: { [work.due]: 1 } },
  { $limit: 1 },
  { $project: { _id: 0, [work.due]: 1 } },
];

const lookup = ({ collection }: KeyedQuery, as: string, pipeline: Document[]): Document => ({
  $lookup: { from: collection.collectionName, localField: 'key', foreignField: 'limitKey', pipeline, as },
});

/** Offered keys, first the one that waits longest, each with its first jobs. */
export function offeredPipeline(
  work: KeyedQuery,
  rule: KeyRule,
  { keys, each }: { readonly keys: number; readonly each: number },
): Document[] {
  return [
    {
      $match: {
        kind: 'key',
        name: { $eq: work.owner },
        full: false,
        at: ANY_DATE,
        $expr: { $lte: ['$at', '$$NOW'] },
      },
    },
    { $sort: { at: 1 } },
    { $limit: keys },
    lookup(work, 'first', firstOf(work, rule, each)),
    { $set: { ids: '$first._id', dues: `$first.${work.due}`, found: 'offered' } },
    { $unset: 'first' },
  ];
}

/** When the next job of each key is due. */
export const laterPipeline = (work: KeyedQuery, ids: readonly string[], now: Date): Document[] => [
  { $match: { _id: { $in: [...ids] } } },
  lookup(work, 'later', nextOf(work, now)),
  { $project: { next: { $first: `$later.${work.due}` } } },
];

/** Adds the time of the next job to keys of which all due jobs were read: they have to be looked at again then. */
async function withLater(
  mongo: Mongo,
  work: KeyedWork,
  offered: readonly OfferedKey[],
  { now, each }: { readonly now: Date; readonly each: number },
): Promise<readonly OfferedKey[]> {
  const ending = offered.filter(({ dues }) => dues.filter((at) => at <= now).length < each);
  if (ending.length === 0) return offered;
  const ids = ending.map(({ _id }) => _id);
  const pipeline = laterPipeline(work, ids, now);
  const rows = await mongo.globals.aggregate<{ _id: string; next?: Date }>(pipeline).toArray();
  const nexts = new Map(rows.map(({ _id, next }) => [_id, next]));
  return offered.map((key) => {
    const next = nexts.get(key._id);
    return next === undefined ? key : { ...key, next };
  });
}

function readPipeline(
  mongo: Mongo,
  work: KeyedWork,
  rule: KeyRule,
  size: { readonly keys: number; readonly each: number },
): Document[] {
  const ofKeys = { kind: 'key', name: { $eq: work.owner } };
  const globals = (pipeline: Document[]): Document => ({
    $unionWith: { coll: mongo.globals.collectionName, pipeline },
  });
  const found = (what: string, fields: Document = {}): Document => ({
    $project: { _id: 0, ...fields, found: { $literal: what } },
  });
  return [
    ...offeredPipeline(work, rule, size),
    globals([
      { $match: { ...ofKeys, full: true, at: ANY_DATE, $expr: { $lte: ['$at', '$$NOW'] } } },
      { $limit: MOST_UNCHECKED },
      { $set: { found: 'unchecked', seen: '$$NOW' } },
    ]),
    globals([
      { $match: { ...ofKeys, full: true, from: ANY_DATE, $expr: { $lte: ['$from', '$$NOW'] } } },
      { $limit: 1 },
      found('blocked'),
    ]),
    globals([
      { $match: { ...ofKeys, full: false, at: ANY_DATE, $expr: { $gt: ['$at', '$$NOW'] } } },
      { $sort: { at: 1 } },
      { $limit: 1 },
      found('next', { at: 1, from: 1, waits: 1 }),
    ]),
    {
      $unionWith: {
        coll: work.collection.collectionName,
        pipeline: [
          { $match: { ...work.named, status: 'pending' } },
          { $sort: work.newest },
          { $limit: NEWEST },
          { $match: { limitKey: null, ...work.ours } },
          { $group: { _id: null, ids: { $push: '$_id' } } },
          found('keyless', { ids: 1 }),
        ],
      },
    },
    globals([{ $match: { _id: ruleId(work.owner) } }, found('rule', { rule: 1 })]),
    globals(work.brief),
  ];
}

export async function readKeys(
  mongo: Mongo,
  work: KeyedWork,
  rule: KeyRule,
  size: { readonly keys: number; readonly each: number },
): Promise<KeysRead> {
  const pipeline = readPipeline(mongo, work, rule, size);
  const rows = await aggregateExact(
    mongo.globals,
    pipeline,
    { hint: 'tidemill_keys' },
    ['ids', 'permits'],
    work.reading,
  ).toArray();
  const of = (what: string): Document[] => rows.filter((row) => row['found'] === what);
  const [next] = of('next');
  const [known] = of('rule');
  const cluster = work.readBrief(rows);
  return {
    offered: await withLater(mongo, work, of('offered') as OfferedKey[], {
      now: cluster.now,
      each: size.each,
    }),
    unchecked: of('unchecked') as unknown as SeenKey[],
    isBlocked: of('blocked').length > 0,
    ...(next === undefined
      ? {}
      : { next: { at: next['at'] as Date, waits: next['waits'] === true || next['from'] < next['at'] } }),
    ...(known === undefined ? {} : { rule: known['rule'] as string }),
    keyless: of('keyless').flatMap((row) => row['ids'] as unknown[]),
    cluster,
  };
}
