/** The database of one test, with a watched collection, its tasks and mills that are stopped at the end. */
import { MongoClient, type Collection, type Db, type Document } from 'mongodb';
import { onTestFinished } from 'vitest';
import type { Tidemill, TidemillOptions } from '../../src/index.js';
import { mongodb, type MongodbStore } from '../../src/mongodb/index.js';
import { aMill } from '../support/mills.js';
import { plannedUpTo, reaches } from './probes.js';
import { freshUri } from '../support/stores.js';

export type Row = Document & { _id: string | number };

export interface ThingsFixture {
  readonly uri: string;
  readonly client: MongoClient;
  readonly db: Db;
  readonly docs: Collection<Row>;
  /** The stored tasks of `docs`, as they are. */
  readonly stored: Collection<Row>;
  /** A new instance; all share the connection, so that handlers may use its sessions. */
  readonly mill: (options?: Partial<TidemillOptions>) => Tidemill<MongodbStore>;
  /** The stored task of one document, as it is. */
  readonly raw: (task: string, id: unknown) => Promise<Row | null>;
  /** Waits until a task is in a state. */
  readonly reaches: typeof reaches;
  /** Waits until the planner has seen everything that was written before. */
  readonly planned: () => Promise<void>;
}

/** Its documents are called `things`; a second collection, `probes`, shows how far the planner has come. */
export function thingsFixture(): ThingsFixture {
  const uri = freshUri();
  const client = new MongoClient(uri);
  const db = client.db();
  onTestFinished(async () => {
    await db.dropDatabase();
    await client.close();
  });
  const stored = db.collection<Row>('things_tasks');
  const raw = (task: string, id: unknown): Promise<Row | null> =>
    stored.findOne({ _id: { task, id } as never });
  return {
    uri,
    client,
    db,
    docs: db.collection<Row>('things'),
    stored,
    raw,
    mill: (options) => aMill(mongodb({ client }), options) as Tidemill<MongodbStore>,
    reaches,
    planned: plannedUpTo({
      write: (id) => db.collection<Row>('probes').insertOne({ _id: id }),
      isPlanned: async (id) =>
        (await db.collection<Row>('probes_tasks').findOne({ sourceDocId: id })) !== null,
    }),
  };
}
