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
export function dueFilter({ fields, condition, mongo }: Documents, withinMs = 0, lockUntil?: Date): Document {
  const value = `$${fields.sleepUntil}`;
  const bound = new Date(mongo.clock.now() + withinMs + SLACK_MS);
  const exact = [
    // Wrapped, so that it is no index bound: a sparse index is not used beside a bound from an expression.
    { $lte: [{ $ifNull: [value, null] }, withinMs === 0 ? '$$NOW' : { $add: ['$$NOW', withinMs] }] },
    { $eq: [{ $type: value }, 'date'] },
    ...(lockUntil === undefined ? [] : [guard(lockUntil)]),
  ];
  return both(condition, { [fields.sleepUntil]: { $lte: bound }, $expr: { $and: exact } });
}

/**
 * Refuses a lock that is already over by the server's clock, because the estimate of that clock was wrong: another
 * scheduler could take the document at once.
 */
const guard = (lockUntil: Date): Document => ({ $lt: ['$$NOW', lockUntil] });

/** Undefined if the lock is already over by the estimated clock: the caller asked for no real lock. */
const guarded = ({ mongo }: Documents, lockUntil: Date): Date | undefined =>
  lockUntil.getTime() > mongo.clock.now() ? lockUntil : undefined;

export async function lockNext(
  documents: Documents,
  lockUntil: Date,
  marks: boolean,
): Promise<Document | null> {
  const { collection, fields, mongo } = documents;
  // A single `findOneAndUpdate` would need the shard key.
  if (mongo.sharded) return (await lockMany(documents, lockUntil, { limit: 1, marks }))[0] ?? null;
  const found = await run('lock a document', () =>
    understood(() =>
      collection.findOneAndUpdate(
        dueFilter(documents, 0, guarded(documents, lockUntil)),
        lockUpdate(documents, lockUntil, marks),
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
  { limit, marks }: { readonly limit: number; readonly marks: boolean },
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
  const until = guarded(documents, lockUntil);
  const statements = candidates.map((document) => ({
    filter: {
      _id: document['_id'] as never,
      [sleepUntil]: valueAt(document, sleepUntil),
      ...(until === undefined ? {} : { $expr: guard(until) }),
    },
    update: lockUpdate(documents, lockUntil, marks),
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

/** A poll: one command, which reads two index keys if nothing is due and there are no misfits. */
function lookPipeline(documents: Documents, withinMs: number, known: readonly unknown[]): Document[] {
  const { collection, fields, condition, mongo } = documents;
  const { sleepUntil } = fields;
  const value = `$${sleepUntil}`;
  const arrays = {
    [sleepUntil]: { $lte: new Date(mongo.clock.now() + SLACK_MS) },
    $expr: { $isArray: value },
  };
  const misfits = {
    ...(known.length === 0 ? {} : { _id: { $nin: known } }),
    $or: [{ [sleepUntil]: { $type: NO_DATES } }, arrays],
  };
  return [
    { $match: dueFilter(documents, withinMs) },
    { $sort: { [sleepUntil]: 1 } },
    { $limit: 1 },
    { $project: { _id: 0, dueInMs: { $subtract: [value, '$$NOW'] } } },
    {
      $unionWith: {
        coll: collection.collectionName,
        pipeline: [
          { $match: both(condition, misfits) },
          { $limit: MOST_MISFITS },
          { $project: { _id: 1, misfit: { value } } },
        ],
      },
    },
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
