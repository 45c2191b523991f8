import { MongoError, type ChangeStream, type Document } from 'mongodb';
import { StoreError } from '../../core/errors.js';
import { HistoryLostError, type Feed, type FeedEvent } from '../../store/reactive.js';
import { BSON_OPTIONS, run, type Mongo } from '../context.js';
import { sorted } from '../errors.js';
import { EXACT, exactId } from '../exact.js';
import { textOf } from './document.js';
import type { Sources } from './sources.js';

/** One command per ten seconds while nothing happens. */
const AWAIT_MS = 10_000;
const BATCH = 1_000;

/** Holds the id of the document that has changed. */
const IDS = 'ids';

const CHANGES = ['insert', 'update', 'replace', 'delete'];
const UPHEAVALS = ['drop', 'rename', 'dropDatabase', 'invalidate'];

/** The oplog does not reach back to the resume point, or the point means nothing to this server. */
const LOST: ReadonlySet<unknown> = new Set([286, 280, 136, 260]);

/** The point cannot even be read. */
const UNREADABLE: ReadonlySet<unknown> = new Set([9, 40_647, 40_648, 40_649]);

const isLost = (error: unknown, token: unknown): boolean =>
  error instanceof MongoError &&
  (LOST.has((error as { code?: unknown }).code) ||
    error.hasErrorLabel('NonResumableChangeStreamError') ||
    (token !== undefined && UNREADABLE.has((error as { code?: unknown }).code)));

/** Ids only: documents never cross the wire while planning. */
const pipelineFor = (collections: readonly string[]): Document[] => [
  {
    $match: {
      $or: [
        { operationType: { $in: CHANGES }, 'ns.coll': { $in: collections } },
        { operationType: { $in: ['drop', 'rename'] }, 'ns.coll': { $in: collections } },
        { operationType: 'rename', 'to.coll': { $in: collections } },
        { operationType: { $in: ['dropDatabase', 'invalidate'] } },
      ],
    },
  },
  {
    $project: {
      _id: 1,
      operationType: 1,
      'ns.coll': 1,
      'to.coll': 1,
      wallTime: 1,
      // In a list of its own, whose items the driver leaves as bytes: an object would lose their order.
      [IDS]: ['$documentKey._id'],
    },
  },
];

function eventOf(row: Document, collections: readonly string[]): FeedEvent {
  const token: unknown = row['_id'];
  const operation = row['operationType'] as string;
  const collection = (row['ns'] as { coll?: string } | undefined)?.coll ?? '';
  if (UPHEAVALS.includes(operation)) {
    const to = (row['to'] as { coll?: string } | undefined)?.coll;
    const named = [collection, to].filter((name) => name !== undefined && collections.includes(name));
    const all = operation === 'dropDatabase' || operation === 'invalidate';
    return { kind: 'upheaval', collections: all ? 'all' : (named as string[]), token };
  }
  const kind = operation === 'insert' || operation === 'delete' ? operation : 'update';
  const at = row['wallTime'] instanceof Date ? row['wallTime'] : new Date();
  const id = exactId((row[IDS] as readonly unknown[])[0]);
  return { kind: 'change', change: { collection, id, key: textOf(id), kind }, token, at };
}

/** The time of the oldest entry of the oplog. Undefined behind mongos, where there are several; refused to a user who may not read `local`. */
export async function historySince({ client, sharded }: Mongo): Promise<Date | undefined> {
  if (sharded) return undefined;
  const oplog = client.db('local').collection('oplog.rs', { readPreference: 'primary', ...BSON_OPTIONS });
  const oldest = oplog.find({}, { projection: { wall: 1 }, sort: { $natural: 1 }, limit: 1 });
  const [first] = await run('read the oplog', () => oldest.toArray());
  return first?.['wall'] instanceof Date ? first['wall'] : undefined;
}

/** A change stream over the sources of one database. */
export async function openFeed(
  sources: Sources,
  database: string | undefined,
  collections: readonly string[],
  token: unknown,
): Promise<Feed> {
  const stream: ChangeStream<Document, Document> = sources.db(database).watch(pipelineFor(collections), {
    ...BSON_OPTIONS,
    ...EXACT,
    fieldsAsRaw: { [IDS]: true },
    maxAwaitTimeMS: AWAIT_MS,
    batchSize: BATCH,
    readConcern: { level: 'majority' },
    readPreference: 'primary',
    // Unlike `resumeAfter` it also goes on after an invalidation.
    ...(token === undefined ? {} : { startAfter: token }),
  });
  const failed = (error: unknown): Error =>
    isLost(error, token)
      ? new HistoryLostError('The history of changes does not reach back to where planning stopped.', {
          cause: error,
        })
      : sorted('watch', error, false);
  // The first token comes with the server's cursor: from here on nothing is missed.
  const opened = new Promise<void>((resolve) => stream.once('resumeTokenChanged', () => resolve()));
  let first: Promise<Document> | undefined = stream.next();
  try {
    await Promise.race([opened, first]);
  } catch (error) {
    await stream.close().catch(() => undefined);
    throw failed(error);
  }
  first.catch(() => undefined);
  return {
    next: async () => {
      try {
        const row = await (first ?? stream.next());
        first = undefined;
        return eventOf(row, collections);
      } catch (error) {
        if (stream.closed) throw new StoreError('watch: the feed was closed.', { transient: true });
        throw failed(error);
      }
    },
    get token() {
      return stream.resumeToken;
    },
    close: () => stream.close().catch(() => undefined),
  };
}
