import type { Document } from 'mongodb';
import type { DocumentLook } from '../../store/documents.js';
import { valueAt } from '../../core/text/paths.js';
import { run } from '../context.js';
import type { Documents } from './context.js';
import { aggregateExact, exactRow, RAW } from '../exact.js';
import { DOCUMENT } from './read.js';
import { lockUpdate, understood, writeEach } from './write.js';

/** How far the estimate of the server's clock may lag: an index bound has to be a plain date, not `$$NOW`. */
const SLACK_MS = 1_000;

/** After meeting another scheduler, the next batch is a random sample of this many batches. */
const WINDOW = 4;

const both = (condition: Document | undefined, filter: Document): Document =>
  condition === undefined ? filter : { $and: [filter, condition] };

/**
 * Matches documents that are due within `withinMs`, by the server's clock. The plain date bounds the index, whatever
 * other values are in it; a comparison in an expression could not, as soon as a single document has an array. The
 * filter takes dates only, so that parked documents cost nothing.
 */
export function dueFilter(
  { fields, condition, mongo }: Documents,
  withinMs = 0,
  guards: readonly Document[] = [],
): Document {
  const value = `$${fields.sleepUntil}`;
  const bound = new Date(mongo.clock.now() + withinMs + SLACK_MS);
  const exact = [
    // Wrapped, so that it is no index bound: a sparse index is not used beside a bound from an expression.
    { $lte: [{ $ifNull: [value, null] }, withinMs === 0 ? '$$NOW' : { $add: ['$$NOW', withinMs] }] },
    { $eq: [{ $type: value }, 'date'] },
    ...guards,
  ];
  return both(condition, { [fields.sleepUntil]: { $lte: bound }, $expr: { $and: exact } });
}

export interface LockTerms {
  readonly marks: boolean;
  readonly notAfter?: Date | undefined;
}

/**
 * Refuses a lock that is already over by the server's clock, because the estimate of that clock was wrong: another
 * scheduler could take the document at once. A lock that is over by the estimate, too, is no real lock, as the caller
 * wants it. Refuses a lock after the permits behind it have ended.
 */
const guardsOf = ({ mongo }: Documents, lockUntil: Date, { notAfter }: LockTerms): readonly Document[] => [
  ...(lockUntil.getTime() > mongo.clock.now() ? [{ $lt: ['$$NOW', lockUntil] }] : []),
  ...(notAfter === undefined ? [] : [{ $lte: ['$$NOW', notAfter] }]),
];

export async function lockNext(
  documents: Documents,
  lockUntil: Date,
  terms: LockTerms,
): Promise<Document | null> {
  const { collection, fields, mongo } = documents;
  // A single `findOneAndUpdate` would need the shard key.
  if (mongo.sharded) return (await lockMany(documents, lockUntil, { limit: 1, ...terms }))[0] ?? null;
  const found = await run('lock a document', () =>
    understood(() =>
      collection.findOneAndUpdate(
        dueFilter(documents, 0, guardsOf(documents, lockUntil, terms)),
        lockUpdate(documents, lockUntil, terms.marks),
        { sort: { [fields.sleepUntil]: 1 }, returnDocument: 'before', ...RAW },
      ),
    ),
  );
  return found === null ? null : exactRow(DOCUMENT)(found);
}

/**
 * Reads a batch, then locks each document under its own precondition. The server's result of each write tells which
 * locks were taken. The current values would not, because another scheduler may write the same ones.
 */
export async function lockMany(
  documents: Documents,
  lockUntil: Date,
  { limit, ...terms }: LockTerms & { readonly limit: number },
): Promise<readonly Document[]> {
  const { collection, fields, rivals } = documents;
  const { sleepUntil } = fields;
  const window = rivals.met ? WINDOW : 1;
  const candidates = await run('read documents that are due', () =>
    aggregateExact(
      collection,
      [
        { $match: dueFilter(documents) },
        { $sort: { [sleepUntil]: 1 } },
        { $limit: limit * window },
        ...(window > 1 ? [{ $sample: { size: limit } }] : []),
      ],
      {},
      ['_id'],
      DOCUMENT,
    ).toArray(),
  );
  const guards = guardsOf(documents, lockUntil, terms);
  const statements = candidates.map((document) => ({
    filter: {
      _id: document['_id'] as never,
      [sleepUntil]: valueAt(document, sleepUntil),
      ...(guards.length === 0 ? {} : { $expr: { $and: guards } }),
    },
    update: lockUpdate(documents, lockUntil, terms.marks),
  }));
  const got = await run('lock documents', () => understood(() => writeEach(documents, statements)));
  rivals.met = got.includes(false);
  return candidates.filter((_document, index) => got[index] === true);
}

/**
 * All types but dates and null, as ranges of an index. Arrays have no range: they are found when one of their elements
 * is due.
 */
const NO_DATES = [
  'number',
  'string',
  'object',
  'binData',
  'objectId',
  'bool',
  'timestamp',
  'regex',
  'javascript',
  'symbol',
  'minKey',
  'maxKey',
];
const MOST_MISFITS = 10;

/**
 * A poll: one command, which reads two index keys if nothing is due and there are no misfits. Arrays are searched for
 * among the first few documents that are due: they are never locked, so they are at the head once the others are done.
 */
function lookPipeline(documents: Documents, withinMs: number, known: readonly unknown[]): Document[] {
  const { collection, fields, condition, mongo } = documents;
  const { sleepUntil } = fields;
  const value = `$${sleepUntil}`;
  const others = known.length === 0 ? {} : { _id: { $nin: known } };
  const due = { ...others, [sleepUntil]: { $lte: new Date(mongo.clock.now() + SLACK_MS) } };
  const found = [{ $limit: MOST_MISFITS }, { $project: { _id: 1, misfit: { value } } }];
  const among = (...pipeline: Document[]): Document => ({
    $unionWith: { coll: collection.collectionName, pipeline },
  });
  return [
    { $match: dueFilter(documents, withinMs) },
    { $sort: { [sleepUntil]: 1 } },
    { $limit: 1 },
    { $project: { _id: 0, dueInMs: { $subtract: [value, '$$NOW'] } } },
    among({ $match: both(condition, { ...others, [sleepUntil]: { $type: NO_DATES } }) }, ...found),
    among(
      { $match: both(condition, due) },
      { $limit: MOST_MISFITS },
      { $match: { $expr: { $isArray: value } } },
      ...found,
    ),
    { $unionWith: { pipeline: [{ $documents: [{ now: '$$NOW' }] }] } },
  ];
}

export async function look(
  documents: Documents,
  withinMs: number,
  known: readonly unknown[],
): Promise<DocumentLook> {
  const { collection, mongo } = documents;
  const within = Math.min(withinMs, LONGEST_MS);
  const sentAt = mongo.clock.monotonic();
  const rows = await run('look for documents', () =>
    aggregateExact(collection, lookPipeline(documents, within, known), {}, ['_id'], DOCUMENT).toArray(),
  );
  const now: unknown = rows.find((row) => 'now' in row)?.['now'];
  if (now instanceof Date) mongo.clock.learn(now, sentAt, mongo.clock.monotonic());
  const dueInMs: unknown = rows.find((row) => 'dueInMs' in row)?.['dueInMs'];
  return {
    dueInMs: typeof dueInMs === 'number' ? dueInMs : null,
    misfits: rows.flatMap((row) => {
      const misfit = row['misfit'] as { value: unknown } | undefined;
      return misfit === undefined ? [] : [{ id: row['_id'] as unknown, value: misfit.value }];
    }),
  };
}

/** A year. The bound of the search must stay a valid date. */
const LONGEST_MS = 365 * 86_400_000;
