import type { Document } from 'mongodb';
import type { KeyRule, KeyUse } from '../../../store/port.js';
import { grantStarts } from '../../../time/rate.js';
import type { Mongo } from '../../context.js';
import { aggregateExact } from '../../exact.js';
import { ANY_DATE } from '../../indexes.js';
import { keyId, type KeyDocument } from './document.js';
import { firstOf, pendingOf } from './read.js';
import type { KeyedWork } from './work.js';

const MOST_COUNTED = 1_000;

interface KeyRow extends KeyDocument {
  readonly due: readonly { readonly at: Date }[];
  readonly count: readonly { readonly due: number }[];
  readonly running: readonly { readonly count: number; readonly first: unknown }[];
  /** With an order only. */
  readonly head?: readonly { readonly _id: unknown; readonly nextRunAt: Date }[];
  readonly now: Date;
}

const dueOf = (work: KeyedWork): Document => ({
  ...pendingOf(work),
  [work.due]: ANY_DATE,
  $expr: { $lte: [`$${work.due}`, '$$NOW'] },
});

function usesPipeline(work: KeyedWork, rule: KeyRule): Document[] {
  const lookup = (as: string, pipeline: Document[]): Document => ({
    $lookup: {
      from: work.collection.collectionName,
      localField: 'key',
      foreignField: 'limitKey',
      pipeline,
      as,
    },
  });
  return [
    lookup('count', [{ $match: dueOf(work) }, { $limit: MOST_COUNTED }, { $count: 'due' }]),
    lookup('due', [
      { $match: dueOf(work) },
      { $sort: { [work.due]: 1 } },
      { $limit: 1 },
      { $project: { _id: 0, at: `$${work.due}` } },
    ]),
    lookup('running', [
      { $match: { ...work.named, ...work.running } },
      { $group: { _id: null, count: { $sum: 1 }, first: { $first: '$_id' } } },
    ]),
    ...(rule.order === undefined ? [] : [lookup('head', firstOf(work, rule, 1))]),
    { $set: { now: '$$NOW' } },
  ];
}

/** The keys of a name with due work, those that wait longest first, or those that are asked for. For people. */
export async function keyUses(
  mongo: Mongo,
  work: KeyedWork,
  rule: KeyRule,
  which: { readonly limit: number } | readonly string[],
): Promise<readonly KeyUse[]> {
  const { owner: name } = work;
  const isList = (value: typeof which): value is readonly string[] => Array.isArray(value);
  const chosen = isList(which)
    ? [{ $match: { _id: { $in: which.map((key) => keyId({ name, key })) } } }]
    : [
        { $match: { kind: 'key', name: { $eq: name }, from: ANY_DATE, $expr: { $lte: ['$from', '$$NOW'] } } },
        { $sort: { from: 1 } },
        { $limit: which.limit },
      ];
  const pipeline = [...chosen, ...usesPipeline(work, rule)];
  const rows = aggregateExact(mongo.globals, pipeline, {}, ['permits'], work.reading);
  const uses = (await rows.toArray()).map((row) => useOf(work, row as unknown as KeyRow, rule));
  if (isList(which)) return uses;
  const since = ({ dueSince }: KeyUse): number => dueSince?.getTime() ?? Infinity;
  return uses.filter(({ dueSince }) => dueSince !== undefined).sort((a, b) => since(a) - since(b));
}

function useOf(
  { idText }: KeyedWork,
  { key, due, count, running, head, rate, now }: KeyRow,
  rule: KeyRule,
): KeyUse {
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
    ...(first === undefined ? {} : { dueSince: first.at }),
    ...(freeAt > now.getTime() ? { rateFreeAt: new Date(freeAt) } : {}),
    ...(next === undefined ? {} : { head: idText(next) }),
    ...(holds ? { headAt: waits.nextRunAt } : {}),
  };
}
