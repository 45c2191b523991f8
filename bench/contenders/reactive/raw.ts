import { ObjectId, type ChangeStream, type Collection, type MongoClient } from 'mongodb';
import { createIndexes } from '../../../src/mongodb/indexes.js';
import { taskIndexes } from '../../../src/mongodb/indexes.js';
import { RawChain } from '../../lib/raw-reactive.js';
import {
  SOURCE,
  TASK,
  TASKS,
  type Data,
  type ReactiveContender,
  type ReactiveModule,
  type ReactivePlace,
} from './contender.js';

const variants = {
  /** Writes a batch, then plans, claims and settles it at once. */
  chain500: { size: 500, ids: 'known, since it writes the documents itself' },
  chain1000: { size: 1_000, ids: 'known, since it writes the documents itself' },
  /** Ids arrive through a change stream, as they do for the other contenders. */
  stream1000: { size: 1_000, ids: 'by a change stream' },
};

/** Yields all ids in order; reads the next page while the caller works on the last one. */
async function* pages(source: Collection, size: number): AsyncGenerator<readonly unknown[]> {
  const read = async (after?: unknown): Promise<unknown[]> => {
    const filter = after === undefined ? {} : { _id: { $gt: after as never } };
    const options = { projection: { _id: 1 }, sort: { _id: 1 }, limit: size, batchSize: size + 1 } as const;
    return (await source.find(filter, options).toArray()).map((row) => row._id);
  };
  for (let page = await read(); page.length > 0;) {
    const next = read(page.at(-1));
    yield page;
    page = await next;
  }
}

/** The plain driver, one batch after the other. It retries nothing and recovers nothing. */
async function open(client: MongoClient, { database, variant }: ReactivePlace): Promise<ReactiveContender> {
  const { size } = variants[variant as keyof typeof variants];
  const db = client.db(database);
  const [source, tasks] = [db.collection(SOURCE), db.collection(TASKS)];
  await db.createCollection(SOURCE).catch(() => undefined);
  await createIndexes(tasks, taskIndexes);
  const chain = new RawChain(db, source, tasks);
  let handler: (data: Data) => void = () => undefined;
  let stream: ChangeStream | undefined;

  const follow = async (): Promise<void> => {
    const waiting: unknown[] = [];
    let working: Promise<void> | undefined;
    const work = async (): Promise<void> => {
      while (waiting.length > 0) await chain.process(waiting.splice(0, size), handler);
      working = undefined;
    };
    const changes = source.watch([{ $project: { _id: 1, operationType: 1, documentKey: 1 } }], {
      batchSize: size,
    });
    stream = changes;
    const opened = new Promise((resolve) => changes.once('resumeTokenChanged', resolve));
    changes.on('change', (event) => {
      if (!('documentKey' in event)) return;
      waiting.push(event.documentKey._id);
      working ??= work();
    });
    await opened;
  };
  const drive = async (count: number): Promise<void> => {
    for (let from = 0; from < count; from += size) {
      const ids = Array.from({ length: Math.min(size, count - from) }, () => new ObjectId());
      await source.insertMany(
        ids.map((_id, index) => ({ _id, data: { n: from + index } })),
        { ordered: false },
      );
      await chain.process(ids, handler);
    }
  };
  const base = {
    start: async (run: (data: Data) => void) => {
      handler = run;
      if (variant.startsWith('stream')) await follow();
    },
    reconcile: async () => {
      for await (const ids of pages(source, size)) await chain.plan(ids);
    },
    leads: () => Promise.resolve(true),
    stop: async () => stream?.close(),
  };
  return variant.startsWith('stream') ? base : { ...base, drive };
}

export const contender: ReactiveModule = {
  variants,
  taskOf: (id) => ({ _id: { task: TASK, id } }),
  unfinished: { task: TASK, status: { $in: ['pending', 'processing'] } },
  open,
};
