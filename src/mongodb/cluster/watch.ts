import type { ChangeStream, Document } from 'mongodb';
import { EVERYTHING, type DueNames, type Hint, type Watch, type WatchHandlers } from '../../store/port.js';
import { run, type Mongo } from '../context.js';
import { pauseId } from '../jobs/claim/peek.js';
import { followed, STREAM_OPTIONS } from './change-stream.js';
import { follow } from './messages.js';

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
      due: '$fullDocument.wake.due',
      news: { $ifNull: ['$updateDescription.updatedFields.news', '$fullDocument.news', null] },
      cancel: { $ifNull: ['$updateDescription.updatedFields.cancelRequestedAt', null] },
    },
  },
];

/**
 * Opens the wake-up channel: the messages of other processes and, if some process sends none, the change stream as well.
 * If the channel breaks, the caller opens another one from now: the poll covers the gap.
 */
export async function watch(mongo: Mongo, handlers: WatchHandlers): Promise<Watch | { unavailable: string }> {
  if (mongo.wakes === undefined) return stream(mongo, handlers);
  const channel = new WakeChannel(handlers);
  const messages = await follow(mongo.wakes, channel.handlers);
  if (messages === undefined) return stream(mongo, handlers);
  channel.add(messages);
  const alsoStream = async (): Promise<void> => {
    const opened = await stream(mongo, channel.handlers);
    if ('close' in opened) channel.add(opened);
  };
  try {
    if (mongo.silent.isRecent || (await hasOlderInstance(mongo))) await alsoStream();
    else {
      const ignore = mongo.silent.onHeard(() => {
        ignore();
        void alsoStream().catch((error: unknown) => channel.handlers.broken(error));
      });
      channel.add({
        close: () => {
          ignore();
          return Promise.resolve();
        },
      });
    }
  } catch (error) {
    await channel.close();
    throw error;
  }
  return channel;
}

/** Several ways to hear of work, as one: if one of them breaks, all of them end. */
class WakeChannel implements Watch {
  readonly handlers: WatchHandlers;
  readonly #parts: Watch[] = [];
  #open = true;

  constructor(handlers: WatchHandlers) {
    this.handlers = {
      ...handlers,
      broken: (error) => {
        if (!this.#open) return;
        void this.close();
        handlers.broken(error);
      },
    };
  }

  add(part: Watch): void {
    if (this.#open) this.#parts.push(part);
    else void part.close();
  }

  async close(): Promise<void> {
    this.#open = false;
    await Promise.all(this.#parts.splice(0).map((part) => part.close()));
  }
}

/** An instance of a version before messages: its writes only carry the flag. */
const hasOlderInstance = (mongo: Mongo): Promise<boolean> =>
  run('watch', async () => {
    const older = { kind: 'instance' as const, dead: false, sends: { $ne: true } };
    return (await mongo.globals.findOne(older, { projection: { _id: 1 } })) !== null;
  });

/** Opens a change stream that only wakes. */
async function stream(mongo: Mongo, handlers: WatchHandlers): Promise<Watch | { unavailable: string }> {
  const { client, jobs, globals } = mongo;
  const pipeline = pipelineFor(jobs.collectionName, globals.collectionName);
  const events: ChangeStream<Document, Document> = client.db(jobs.dbName).watch(pipeline, STREAM_OPTIONS);
  const handle = (event: Document): void => {
    if ((event['ns'] as Document | undefined)?.['coll'] === globals.collectionName)
      coordinate(event, handlers);
    else if (event['cancel'] === null) handlers.wake('jobs', hintOf(event), dueOf(event));
    else handlers.cancel();
  };
  return followed(events, handle, handlers);
}

function coordinate(event: Document, handlers: WatchHandlers): void {
  const { _id } = event['documentKey'] as Document;
  const isPause = String(_id).startsWith(PAUSE);
  if (event['news'] !== null) handlers.news();
  if (isPause) handlers.wake('jobs');
  if (!isPause || _id === pauseId(EVERYTHING)) handlers.wake('tasks');
}

/** An insert tells which job it is about; an update may stand for many. */
function hintOf(event: Document): Hint | undefined {
  const { name } = event;
  const { _id: key } = event['documentKey'] as Document;
  return typeof name === 'string' ? { key, name } : undefined;
}

/** Absent: the insert stands for jobs of any name. */
function dueOf({ name, due }: Document): DueNames | undefined {
  return typeof name === 'string' && typeof due === 'number' ? new Map([[name, due]]) : undefined;
}
