import type { ChangeStream, Document } from 'mongodb';
import type { Hint, Watch, WatchHandlers } from '../../store/port.js';
import { BSON_OPTIONS, type Mongo } from '../context.js';
import { lacksChangeStreams, classifyError } from '../errors.js';

/** One command every ten seconds while nothing happens. */
const AWAIT_MS = 10_000;

/**
 * Prefix of the document of a paused name. A pause also wakes instances: jobs that were claimed ahead must not start.
 */
const PAUSE = 'pause:';

/**
 * Selects inserts and updates that ask for a wake-up, cancel requests, notifications of the leader and pauses. Their
 * documents do not cross the wire.
 */
const pipelineFor = (jobs: string, globals: string): Document[] => [
  {
    $match: {
      $or: [
        { 'ns.coll': jobs, operationType: 'insert', 'fullDocument.wake': { $exists: true } },
        {
          'ns.coll': jobs,
          operationType: 'update',
          'updateDescription.updatedFields.wake': { $exists: true },
        },
        {
          'ns.coll': jobs,
          operationType: 'update',
          'updateDescription.updatedFields.cancelRequestedAt': { $exists: true },
        },
        { 'ns.coll': globals, operationType: { $in: ['insert', 'update'] }, 'documentKey._id': 'bell' },
        {
          'ns.coll': globals,
          operationType: { $in: ['insert', 'delete'] },
          'documentKey._id': { $regex: `^${PAUSE}` },
        },
      ],
    },
  },
  {
    $project: {
      _id: 1,
      operationType: 1,
      'ns.coll': 1,
      'documentKey._id': 1,
      name: '$fullDocument.name',
      news: { $ifNull: ['$updateDescription.updatedFields.news', '$fullDocument.news', null] },
      cancel: { $ifNull: ['$updateDescription.updatedFields.cancelRequestedAt', null] },
    },
  },
];

/**
 * Opens a change stream that only wakes. If the driver cannot resume it, it is closed, and the caller opens another one
 * from now: the poll covers the gap.
 */
export async function watch(mongo: Mongo, handlers: WatchHandlers): Promise<Watch | { unavailable: string }> {
  const { client, jobs, globals } = mongo;
  const pipeline = pipelineFor(jobs.collectionName, globals.collectionName);
  const stream: ChangeStream<Document, Document> = client.db(jobs.dbName).watch(pipeline, {
    ...BSON_OPTIONS,
    readPreference: 'primary',
    maxAwaitTimeMS: AWAIT_MS,
    batchSize: 100,
    readConcern: { level: 'majority' },
  });
  let open = true;
  // The first resume token comes with the server's cursor: from here on, nothing is missed.
  const opened = new Promise((resolve) => stream.once('resumeTokenChanged', resolve));
  const reading = read(stream, globals.collectionName, handlers);
  try {
    await Promise.race([opened, reading]);
  } catch (error) {
    await stream.close().catch(() => undefined);
    if (lacksChangeStreams(error))
      return { unavailable: 'the server has no change streams (it is not a replica set)' };
    throw classifyError('watch', error, false);
  }
  const ended = reading.catch(async (error: unknown) => {
    if (open) handlers.broken(classifyError('watch', error, false));
    await stream.close().catch(() => undefined);
  });
  return {
    close: async () => {
      open = false;
      await stream.close().catch(() => undefined);
      await ended;
    },
  };
}

/** Reads until the stream breaks or is closed; both reject. */
async function read(
  stream: ChangeStream<Document, Document>,
  globals: string,
  handlers: WatchHandlers,
): Promise<never> {
  for (;;) {
    const event = await stream.next();
    if ((event['ns'] as Document | undefined)?.['coll'] === globals) coordinate(event, handlers);
    else if (event['cancel'] === null) handlers.wake('jobs', hintOf(event));
    else handlers.cancel();
  }
}

function coordinate(event: Document, handlers: WatchHandlers): void {
  const { _id } = event['documentKey'] as Document;
  const isPause = String(_id).startsWith(PAUSE);
  if (event['news'] !== null) handlers.news();
  handlers.wake(isPause ? 'jobs' : 'tasks');
}

/** An insert tells which job it is about; an update may stand for many. */
function hintOf(event: Document): Hint | undefined {
  const { name } = event;
  const { _id: key } = event['documentKey'] as Document;
  return typeof name === 'string' ? { key, name } : undefined;
}
