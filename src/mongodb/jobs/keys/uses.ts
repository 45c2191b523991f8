import type { Document } from 'mongodb';
import type { KeyRule, KeyUse } from '../../../store/port.js';
import { grantStarts } from '../../../time/rate.js';
import { BSON_OPTIONS, type Mongo } from '../../context.js';
import { aggregateExact } from '../../exact.js';
import { ANY_DATE } from '../../indexes.js';
import { toText, type Key } from '../document.js';
import { keyId, pendingOf, type KeyDocument } from './document.js';
import { firstOf } from './read.js';

const MOST_COUNTED = 1_000;

interface KeyRow extends KeyDocument {
  readonly due: readonly { readonly nextRunAt: Date }[];
  readonly count: readonly { readonly due: number }[];
  readonly running: readonly { readonly count: number; readonly first: Key }[];
  /** With an order only. */
  readonly head?: readonly { readonly _id: Key; readonly nextRunAt: Date }[];
  readonly now: Date;
}

const dueOf = (name: string): Document => ({
  ...pendingOf(name),
  nextRunAt: ANY_DATE,
  $expr: { $lte: ['$nextRunAt', '$$NOW'] },
});

function usesPipeline(mongo: Mongo, name: string, rule: KeyRule): Document[] {
  const lookup = (as: string, pipeline: Document[]): Document => ({
    $lookup: { from: mongo.jobs.collectionName, localField: 'key', foreignField: 'limitKey', pipeline, as },
  });
  return [
    lookup('count', [{ $match: dueOf(name) }, { $limit: MOST_COUNTED }, { $count: 'due' }]),
    lookup('due', [
      { $match: dueOf(name) },
      { $sort: { nextRunAt: 1 } },
      { $limit: 1 },
      { $project: { _id: 0, nextRunAt: 1 } },
    ]),
    lookup('running', [
      { $match: { name: { $eq: name }, status: 'processing' } },
      { $group: { _id: null, count: { $sum: 1 }, first: { $first: '$_id' } } },
    ]),
    ...(rule.order === undefined ? [] : [lookup('head', firstOf(name, rule, 1))]),
    { $set: { now: '$$NOW' } },
  ];
}

/** The keys of a name with due work, those that wait longest first, or those that are asked for. For people. */
export async function keyUses(
  mongo: Mongo,
  name: string,
  rule: KeyRule,
  which: { readonly limit: number } | readonly string[],
): Promise<readonly KeyUse[]> {
  const isList = (value: typeof which): value is readonly string[] => Array.isArray(value);
  const chosen = isList(which)
    ? [{ $match: { _id: { $in: which.map((key) => keyId({ name, key })) } } }]
    : [
        { $match: { kind: 'key', name: { $eq: name }, from: ANY_DATE, $expr: { $lte: ['$from', '$$NOW'] } } },
        { $sort: { from: 1 } },
        { $limit: which.limit },
      ];
  const pipeline = [...chosen, ...usesPipeline(mongo, name, rule)];
  const rows = aggregateExact(mongo.globals, pipeline, {}, ['permits'], BSON_OPTIONS);
  const uses = (await rows.toArray()).map((row) => useOf(row as unknown as KeyRow, rule));
  if (isList(which)) return uses;
  const since = ({ dueSince }: KeyUse): number => dueSince?.getTime() ?? Infinity;
  return uses.filter(({ dueSince }) => dueSince !== undefined).sort((a, b) => since(a) - since(b));
}

function useOf({ key, due, count, running, head, rate, now }: KeyRow, rule: KeyRule): KeyUse {
  const [first] = due;
  const [runs] = running;
  const freeAt =
    rule.rate === undefined
      ? 0
      : grantStarts(rate, rule.rate, { wanted: 0, now: now.getTime(), withinMs: 0 }).freeAt;
  const [waits] = head ?? [];
  const next = rule.order === undefined ? undefined : (runs?.first ?? waits?._id);
  const holds = runs === undefined && waits !== undefined && waits.nextRunAt > now;
  return {
    key,
    running: runs?.count ?? 0,
    due: count[0]?.due ?? 0,
    ...(first === undefined ? {} : { dueSince: first.nextRunAt }),
    ...(freeAt > now.getTime() ? { rateFreeAt: new Date(freeAt) } : {}),
    ...(next === undefined ? {} : { head: toText(next) }),
    ...(holds ? { headAt: waits.nextRunAt } : {}),
  };
}
