import type { Document } from 'mongodb';
import type { DocumentLook } from '../../store/documents.js';
import { valueAt } from '../../core/text/paths.js';
import { run } from '../context.js';
import type { Documents } from './context.js';
import { aggregateExact, exactRow, RAW } from '../exact.js';
import { DOCUMENT } from './read.js';
import { lockUpdate, understood, writeEach } from './write.js';

/** How far the estimate of the server's clock may lag: the bound of an index has to be a plain date, not `$$NOW`. */
const SLACK_MS = 1_000;

/** Whoever met somebody else takes a random part of so many batches next time. */
const WINDOW = 4;

const both = (condition: Document | undefined, filter: Document): Document =>
  condition === undefined ? filter : { $and: [filter, condition] };

/**
 * Documents that are due within a while, by the server's clock. The plain date bounds the index, whatever else is in it:
 * a comparison of an expression could not, where a single document has an array. It means dates alone, so that parked
 * documents cost nothing.
 */
export function dueFilter({ fields, condition, mongo }: Documents, withinMs = 0, lockUntil?: Date): Document {
  const value = `$${fields.sleepUntil}`;
  const bound = new Date(mongo.clock.now() + withinMs + SLACK_MS);
  const exact = [
    // Wrapped, so that it is no bound: beside one that comes from an expression a sparse index is not used.
    { $lte: [{ $ifNull: [value, null] }, withinMs === 0 ? '$$NOW' : { $add: ['$$NOW', withinMs] }] },
    { $eq: [{ $type: value }, 'date'] },
    ...(lockUntil === undefined ? [] : [guard(lockUntil)]),
  ];
  return both(condition, { [fields.sleepUntil]: { $lte: bound }, $expr: { $and: exact } });
}

/** A lock that is over already would let somebody else in at once: the clock's estimate was wrong. */
const guard = (lockUntil: Date): Document => ({ $lt: ['$$NOW', lockUntil] });

/** None where there is no lock to speak of. */
const guarded = ({ mongo }: Documents, lockUntil: Date): Date | undefined =>
  lockUntil.getTime() > mongo.clock.now() ? lockUntil : undefined;

export async function lockNext(
  documents: Documents,
  lockUntil: Date,
  marks: boolean,
): Promise<Document | null> {
  const { collection, fields, mongo } = documents;
  // It would need the shard key.
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
 * Reads a batch, then writes each document of it under its own precondition. Which ones were got is what the server says
 * of each write, and not which ones have the lock's value now: others may write the same.
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

/** All but dates and null, in ranges of an index. Arrays have none: they are seen when an element of theirs is due. */
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

/** A poll: one command, and two keys where nothing is due and all is well. */
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

/** A year: dates stay dates. */
const LONGEST_MS = 365 * 86_400_000;
