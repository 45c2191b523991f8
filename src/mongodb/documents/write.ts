import {
  BSON,
  type AnyClientBulkWriteModel,
  type ClientBulkWriteResult,
  type Document,
  type Filter,
  type UpdateFilter,
} from 'mongodb';
import { OptionError } from '../../core/errors.js';
import { valueAt } from '../../core/text/paths.js';
import type { DocumentChanges, DocumentWrite, Fenced } from '../../store/documents.js';
import { BSON_OPTIONS, run } from '../context.js';
import type { Documents } from './context.js';
import { DOCUMENT, unchanged } from './read.js';
import { isInvalid, unconfirmedCount, unconfirmedResult } from '../errors.js';
import { findExact } from '../exact.js';
import { writeOnce } from '../majority.js';
import { textOf } from '../reactive/document.js';

/** One statement of a batch. It deletes if it has no update. */
interface Statement {
  readonly filter: Filter<Document>;
  readonly update?: UpdateFilter<Document> | Document[];
  /** It may apply to several documents. */
  readonly many?: boolean;
}

interface Limit {
  readonly maxTimeMS?: number;
}

/** Infinity means no limit. */
type LimitMs = number;

const limited = <T>(
  limitMs: LimitMs,
  statement: (limit: Limit) => Promise<T>,
  made: (error: unknown) => T | undefined,
): Promise<T> => (limitMs === Infinity ? statement({}) : writeOnce(limitMs, statement, made));

/** A renewal waits at most this long for a document that an open transaction holds. */
const RENEWAL_MS: LimitMs = 2_000;

/** The `bulkWrite` command, which reports on each of its statements, came with MongoDB 8.0. */
const BULK_WRITE_WIRE = 25;

/**
 * Returns how many documents each statement matched. Sends one command, or one per statement if the server has no
 * `bulkWrite` command.
 */
async function counts(
  documents: Documents,
  statements: readonly Statement[],
  limitMs: LimitMs = Infinity,
): Promise<readonly number[]> {
  const { mongo } = documents;
  if (statements.length > 1 && mongo.wire >= BULK_WRITE_WIRE)
    return inOneCommand(documents, statements, limitMs);
  return Promise.all(
    statements.map((statement) =>
      limited(limitMs, (limit) => one(documents, statement, limit), unconfirmedCount),
    ),
  );
}

async function one(
  { collection }: Documents,
  { filter, update, many }: Statement,
  limit: Limit,
): Promise<number> {
  if (update === undefined) {
    const { deletedCount } = await (many === true
      ? collection.deleteMany(filter, limit)
      : collection.deleteOne(filter, limit));
    return deletedCount;
  }
  const answer = await (many === true
    ? collection.updateMany(filter, update, limit)
    : collection.updateOne(filter, update, limit));
  return answer.matchedCount;
}

async function inOneCommand(
  { mongo, collection }: Documents,
  statements: readonly Statement[],
  limitMs: LimitMs,
): Promise<readonly number[]> {
  const { namespace } = collection;
  const models = statements.map(({ filter, update, many }): AnyClientBulkWriteModel<Document> => {
    if (update === undefined) return { namespace, filter, name: many === true ? 'deleteMany' : 'deleteOne' };
    return { namespace, filter, update, name: many === true ? 'updateMany' : 'updateOne' };
  });
  const write = (limit: Limit): Promise<ClientBulkWriteResult> =>
    mongo.client.bulkWrite(models, {
      ordered: false,
      verboseResults: true,
      ...limit,
      ...BSON_OPTIONS,
      ...(mongo.options.writeConcern === undefined ? {} : { writeConcern: mongo.options.writeConcern }),
    });
  const answer = await limited(limitMs, write, unconfirmedResult);
  return statements.map(
    (_statement, at) =>
      answer.updateResults?.get(at)?.matchedCount ?? answer.deleteResults?.get(at)?.deletedCount ?? 0,
  );
}

/** For statements on one document each: returns true for those that matched. */
export const writeEach = async (
  documents: Documents,
  statements: readonly Statement[],
  limitMs?: LimitMs,
): Promise<boolean[]> => (await counts(documents, statements, limitMs)).map((count) => count > 0);

const fence = ({ fields }: Documents, { ifSleepUntil, ifRevision }: Fenced): Filter<Document> => ({
  ...(ifSleepUntil === undefined ? {} : { [fields.sleepUntil]: ifSleepUntil }),
  ...(ifRevision === undefined ? {} : unchanged(ifRevision)),
});

function updateOf(
  { fields }: Documents,
  { sleepUntil, autoRemove, failure }: DocumentChanges,
): UpdateFilter<Document> {
  const set: Document = {
    ...(sleepUntil === undefined ? {} : { [fields.sleepUntil]: sleepUntil }),
    ...(autoRemove === undefined ? {} : { [fields.autoRemove]: autoRemove }),
    ...(failure === undefined || failure === null || fields.failure === null
      ? {}
      : { [fields.failure]: failure }),
  };
  const off = failure === null && fields.failure !== null ? { $unset: { [fields.failure]: 1 as const } } : {};
  return { ...(Object.keys(set).length === 0 ? {} : { $set: set }), ...off };
}

/** Sets the end of a lock and, with `marks`, the mark beside failures; anything else there stays. */
export function lockUpdate(
  { fields }: Documents,
  until: Date,
  marks: boolean,
): UpdateFilter<Document> | Document[] {
  const { sleepUntil, failure } = fields;
  if (!marks || failure === null) return { $set: { [sleepUntil]: until } };
  const value = `$${failure}`;
  const kept = { $cond: [{ $eq: [{ $type: value }, 'object'] }, value, {}] };
  return [{ $set: { [sleepUntil]: until, [failure]: { $mergeObjects: [kept, { lockedUntil: until }] } } }];
}

interface Group {
  readonly write: DocumentWrite;
  readonly indexes: number[];
}

/** Groups writes that differ only in their document; each group is one statement. */
function grouped(writes: readonly DocumentWrite[]): readonly Group[] {
  const groups = new Map<string, Group>();
  for (const [index, write] of writes.entries()) {
    const { id: _id, ...what } = write;
    const key = BSON.EJSON.stringify(what);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, { write, indexes: [index] });
    else group.indexes.push(index);
  }
  return [...groups.values()];
}

export async function settle(documents: Documents, writes: readonly DocumentWrite[]): Promise<boolean[]> {
  const groups = grouped(writes);
  const idOf = (index: number): unknown => writes[index]?.id;
  const statements = groups.map(({ write, indexes }): Statement => {
    const many = indexes.length > 1;
    const filter = {
      _id: (many ? { $in: indexes.map(idOf) } : idOf(indexes[0] ?? 0)) as never,
      ...fence(documents, write),
    };
    return 'remove' in write
      ? { filter, many }
      : { filter, many, update: updateOf(documents, write.changes) };
  });
  const answers = writes.map(() => true);
  const found = await run('record documents', () => understood(() => counts(documents, statements)), true);
  for (const [at, { write, indexes }] of groups.entries()) {
    if (found[at] === indexes.length) continue;
    const done = indexes.length === 1 ? new Set<string>() : await doneOf(documents, write, indexes.map(idOf));
    for (const index of indexes) answers[index] = done.has(textOf(idOf(index)));
  }
  return answers;
}

/**
 * For a group of which some documents did not match: returns the ids of those that are now as the write wanted them.
 */
async function doneOf(
  { collection, fields }: Documents,
  write: DocumentWrite,
  ids: readonly unknown[],
): Promise<ReadonlySet<string>> {
  const there = await run('read documents', () =>
    findExact(
      collection,
      { _id: { $in: ids as never[] } },
      { projection: { [fields.sleepUntil]: 1 } },
      DOCUMENT,
    ).toArray(),
  );
  if ('remove' in write) {
    const left = new Set(there.map((document) => textOf(document['_id'])));
    return new Set(ids.map(textOf).filter((id) => !left.has(id)));
  }
  const { sleepUntil = write.ifSleepUntil } = write.changes;
  const isDone = (document: Document): boolean =>
    sleepUntil === undefined || textOf(valueAt(document, fields.sleepUntil) ?? null) === textOf(sleepUntil);
  return new Set(there.filter(isDone).map((document) => textOf(document['_id'])));
}

/** Renews each lock under its own precondition, and reports on each by itself. */
export async function renew(
  documents: Documents,
  locks: readonly ({ readonly id: unknown } & Fenced)[],
  until: Date,
  marks: boolean,
): Promise<boolean[]> {
  const statements = locks.map((lock) => ({
    filter: { _id: lock.id as never, ...fence(documents, lock) },
    update: lockUpdate(documents, until, marks),
  }));
  return run('renew locks', () => writeEach(documents, statements, RENEWAL_MS), true);
}

/** Explains a refusal by the collection's validator. If it does not allow failures, every retry would be refused. */
export async function understood<T>(statements: () => Promise<T>): Promise<T> {
  try {
    return await statements();
  } catch (error) {
    if (!isInvalid(error)) throw error;
    throw new OptionError(
      "The collection's validator refuses what a schedule writes: sleepUntil, and what `fields.failure` names. Allow " +
        'them, or set `fields: { failure: null }`.',
      { cause: error },
    );
  }
}
