import { MongoError, Timestamp, type ChangeStream, type Document } from 'mongodb';
import { StoreError } from '../../core/errors.js';
import type { Partition } from '../../store/reactive/partitions.js';
import {
  HistoryLostError,
  type Feed,
  type FeedEvent,
  type FeedRequest,
} from '../../store/reactive/reactive.js';
import { BSON_OPTIONS, rawFields, run, type Mongo } from '../context.js';
import { classifyError } from '../errors.js';
import { EXACT, exactId } from '../exact.js';
import { textOf } from './document.js';
import { inPartition } from './partition.js';
import type { MongodbSources } from './sources.js';

/** One command every ten seconds while nothing happens. */
const AWAIT_MS = 10_000;
const BATCH = 1_000;

/** The field that holds the id of the changed document. */
const IDS = 'ids';

const CHANGES = ['insert', 'update', 'replace', 'delete'];
const UPHEAVALS = ['drop', 'rename', 'dropDatabase', 'invalidate'];

/** The oplog does not reach back to the resume point, or the point means nothing to this server. */
const LOST: ReadonlySet<unknown> = new Set([286, 280, 136, 260]);

/** The resume point cannot even be parsed. */
const UNREADABLE: ReadonlySet<unknown> = new Set([9, 40_647, 40_648, 40_649]);

const isLost = (error: unknown, token: unknown): boolean =>
  error instanceof MongoError &&
  (LOST.has((error as { code?: unknown }).code) ||
    error.hasErrorLabel('NonResumableChangeStreamError') ||
    (token !== undefined && UNREADABLE.has((error as { code?: unknown }).code)));

/** Ids only: documents never cross the wire while planning. */
const pipelineFor = (collections: readonly string[], partition: Partition): Document[] => [
  {
    $match: {
      $or: [
        {
          operationType: { $in: CHANGES },
          'ns.coll': { $in: collections },
          ...inPartition(partition, '$documentKey._id'),
        },
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
      // In a list of its own, whose items the driver leaves as bytes: an object would lose the order of their keys.
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

/**
 * Returns the time of the oldest oplog entry. Undefined behind mongos, where there are several oplogs; fails for a user
 * who may not read `local`.
 */
export async function historySince({ client, sharded }: Mongo): Promise<Date | undefined> {
  if (sharded) return undefined;
  const oplog = client.db('local').collection('oplog.rs', { readPreference: 'primary', ...BSON_OPTIONS });
  const oldest = oplog.find({}, { projection: { wall: 1 }, sort: { $natural: 1 }, limit: 1 });
  const [first] = await run('read the oplog', () => oldest.toArray());
  return first?.['wall'] instanceof Date ? first['wall'] : undefined;
}

/**
 * Returns the time of a resume point: a token's text begins with the type of a timestamp, followed by the timestamp. A
 * time itself is a resume point as well, see `lowest` in partitioning.ts.
 */
export function timeOf(token: unknown): Timestamp | undefined {
  if (token instanceof Timestamp) return token;
  const text = (token as { readonly _data?: unknown } | undefined)?._data;
  const [, t, i] = typeof text === 'string' ? (/^82([0-9A-F]{8})([0-9A-F]{8})/iu.exec(text) ?? []) : [];
  if (t === undefined || i === undefined) return undefined;
  return Timestamp.fromBits(Number.parseInt(i, 16), Number.parseInt(t, 16));
}

/** The feed goes back no further than this: reconciliation finds what an earlier start would have brought. */
const MOST_BACK_MS = 600_000;

/** Returns the earliest of the requested points, if it is before the resume point. */
function earliest({ since = [], token }: FeedRequest, now: number): Timestamp | undefined {
  const times = since
    .filter((one): one is Timestamp => one instanceof Timestamp)
    .filter((one) => now - one.t * 1_000 < MOST_BACK_MS);
  const [first] = times.sort((a, b) => a.compare(b));
  const resume = timeOf(token);
  if (first === undefined || (token !== undefined && resume === undefined)) return undefined;
  return resume === undefined || first.lessThan(resume) ? first : undefined;
}

interface StreamFeedOptions {
  readonly collections: readonly string[];
  /** The first read, sent when the stream was opened. */
  readonly first: Promise<Document | null>;
  /** The resume point of the new stream; undefined if it is not known before the first event. */
  readonly token: unknown;
  readonly failed: (error: unknown) => Error;
}

class StreamFeed implements Feed {
  readonly #stream: ChangeStream<Document, Document>;
  readonly #options: StreamFeedOptions;
  #first: Promise<Document | null> | undefined;
  #isClosed = false;
  #arrived: unknown;
  #returned: unknown;

  constructor(stream: ChangeStream<Document, Document>, options: StreamFeedOptions) {
    this.#stream = stream;
    this.#options = options;
    this.#first = options.first;
    this.#arrived = this.#returned = options.token;
  }

  get token(): unknown {
    return this.#arrived;
  }

  async next(): Promise<FeedEvent> {
    this.#arrived = this.#returned;
    for (;;) {
      const row = await this.#tryNext();
      if (row === null) {
        // Nothing came for a while: only now is the stream's own point before everything that may still come.
        this.#arrived = this.#returned = this.#stream.resumeToken;
        continue;
      }
      const event = eventOf(row, this.#options.collections);
      this.#returned = event.token;
      return event;
    }
  }

  async #tryNext(): Promise<Document | null> {
    const stream = this.#stream;
    const asked = this.#first ?? stream.tryNext();
    this.#first = undefined;
    try {
      const row = await asked;
      if (row !== null || !stream.closed) return row;
    } catch (error) {
      if (!this.#isClosed) throw this.#options.failed(error);
    }
    throw new StoreError('watch: the feed was closed.', { transient: true });
  }

  close(): Promise<void> {
    this.#isClosed = true;
    return this.#stream.close().catch(() => undefined);
  }
}

const nextTurn = <T>(value: T): Promise<T> =>
  new Promise((resolve) => {
    setImmediate(resolve, value);
  });

/**
 * Opens a change stream over the sources of one database. If the history does not reach back to `since`, starts at the
 * resume point instead.
 */
export async function openFeed(
  sources: MongodbSources,
  request: FeedRequest,
  partition: Partition,
): Promise<Feed> {
  const { token } = request;
  const since = earliest(request, sources.mongo.clock.now());
  if (since === undefined) return openStream(sources, request, startAt(token), partition);
  try {
    return await openStream(sources, request, { startAtOperationTime: since }, partition);
  } catch (error) {
    if (!(error instanceof HistoryLostError)) throw error;
    return openFeed(sources, { ...request, since: [] }, partition);
  }
}

function startAt(token: unknown): Parameters<typeof openStream>[2] {
  if (token === undefined) return {};
  // Unlike `resumeAfter`, `startAfter` also continues after an invalidation.
  return token instanceof Timestamp ? { startAtOperationTime: token } : { startAfter: token };
}

async function openStream(
  sources: MongodbSources,
  { database, collections, token }: FeedRequest,
  start: { readonly startAfter?: unknown; readonly startAtOperationTime?: Timestamp },
  partition: Partition,
): Promise<Feed> {
  const pipeline = pipelineFor(collections, partition);
  const stream: ChangeStream<Document, Document> = sources.db(database).watch(pipeline, {
    ...BSON_OPTIONS,
    ...EXACT,
    fieldsAsRaw: rawFields(IDS),
    maxAwaitTimeMS: AWAIT_MS,
    batchSize: BATCH,
    readConcern: { level: 'majority' },
    readPreference: 'primary',
    ...start,
  });
  const failed = (error: unknown): Error =>
    isLost(error, token)
      ? new HistoryLostError('The history of changes does not reach back to where planning stopped.', {
          cause: error,
        })
      : classifyError('watch', error, false);
  // The first resume token comes with the server's cursor: from here on, nothing is missed.
  const opened = new Promise<unknown>((resolve) => stream.once('resumeTokenChanged', resolve));
  const first = stream.tryNext();
  try {
    const point = await Promise.race([opened, first.then(() => undefined)]);
    first.catch(() => undefined);
    if (start.startAfter !== undefined) return new StreamFeed(stream, { collections, first, failed, token });
    // A stream that begins in the past may already have brought a change. Its point is then after that change.
    const isPast = await Promise.race([first.then(() => true), nextTurn(false)]);
    return new StreamFeed(stream, { collections, first, failed, token: isPast ? undefined : point });
  } catch (error) {
    await stream.close().catch(() => undefined);
    throw failed(error);
  }
}
