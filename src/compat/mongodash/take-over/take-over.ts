/** Takes over what mongodash has stored, once it is stopped: the state of reactive tasks, and when cron tasks run next. */
import { MongoClient, type Db, type DbOptions, type Document } from 'mongodb';
import { OptionError, Tidemill, TidemillError } from '../../../index.js';
import { mongodb } from '../../../mongodb/index.js';
import { tasksCollectionOf } from '../stored.js';
import { CRON_TASKS, ranMeanwhile, signsOfLife, takeOverCron } from './cron.js';
import { PROMOTE_NOTHING, takeOverTask, type SourceOfTask, type TaskCount } from './tasks.js';

export interface TakeOverOptions {
  /** A client of the database in which mongodash is. Not closed. */
  readonly client: MongoClient;
  /** Default: that of the client's uri. */
  readonly database?: string;
  /** mongodash's collection of coordination documents. Default: '_mongodash_globals'. */
  readonly globalsCollection?: string;
  /** Names the task collection of a source here. Default: what `init` uses. */
  readonly tasks?: (collection: string) => string;
  /** Only counts. Default: false. */
  readonly dryRun?: boolean;
  /** Deletes what was taken over from mongodash's collections. Default: false. */
  readonly move?: boolean;
  /** Called after each batch, with all counts so far. */
  readonly onProgress?: (counts: readonly TaskCount[]) => void;
}

export interface TakenOver {
  /** False if the database has nothing of mongodash. */
  readonly isKnown: boolean;
  readonly reactiveTasks: readonly TaskCount[];
  /** Ids of cron tasks. */
  readonly cronTasks: readonly string[];
  /** What was left out, and why. */
  readonly leftOut: readonly string[];
}

/** Whatever the user's client is set to. */
const SAFE: DbOptions = {
  readPreference: 'primary',
  writeConcern: { w: 'majority' },
  ignoreUndefined: true,
  useBigInt64: false,
  raw: false,
};
const META = '_mongodash_planner_meta';
const SUFFIX = '_tasks';

interface Place extends SourceOfTask {
  readonly task: string;
}

/** The records of mongodash have an ObjectId; those of Tidemill have a key of two fields. */
const THEIRS: Document = {
  _id: { $type: 'objectId' },
  task: { $type: 'string' },
  sourceDocId: { $exists: true },
};

async function placesOf(db: Db): Promise<readonly Place[]> {
  const collections = await db.listCollections({ name: /_tasks$/u }, { nameOnly: true }).toArray();
  const places: Place[] = [];
  for (const { name } of collections) {
    const records = db.collection(name);
    const names = await records.distinct('task', THEIRS);
    const collection = name.slice(0, -SUFFIX.length);
    for (const task of names as unknown as string[]) places.push({ task, records: name, collection });
  }
  return places;
}

/** A dot in a task's name made a level of the document. */
function triggerOf(meta: Document | null, task: string): Document | undefined {
  const path = ['tasks', ...task.split('.'), 'triggerConfig'];
  return path.reduce<Document | undefined>((at, key) => at?.[key] as Document | undefined, meta ?? undefined);
}

/** Without the right globals collection, neither the definitions of tasks nor a living leader would be seen. */
async function metaOf(db: Db, globalsCollection: string, places: readonly Place[]): Promise<Document | null> {
  const meta = await db
    .collection<Document & { _id: string }>(globalsCollection, PROMOTE_NOTHING)
    .findOne({ _id: META });
  const [place] = places;
  if (meta === null && place !== undefined)
    throw new OptionError(
      `${place.records} has records of mongodash, but the collection ${globalsCollection} has no ${META}. ` +
        'Pass the globalsCollection that you passed to init; on the command line: --from-collection.',
    );
  return meta;
}

/**
 * While an instance of mongodash lives, both would run the same work. One that only waits for its next cron task leaves
 * no trace until then: that is seen by what has changed since `signs` were read.
 */
async function refuseLive(
  db: Db,
  globalsCollection: string,
  places: readonly Place[],
  signs: ReadonlyMap<string, string>,
): Promise<void> {
  const now = new Date();
  const leader = await db
    .collection<{ _id: string }>(globalsCollection)
    .findOne({ _id: META, 'lock.expiresAt': { $gt: now } } as never);
  const running = ['processing', 'processing_dirty'];
  const held = await Promise.all([
    ...[...new Set(places.map(({ records }) => records))].map((name) =>
      db
        .collection(name)
        .countDocuments({ ...THEIRS, status: { $in: running }, nextRunAt: { $gt: now } }, { limit: 1 }),
    ),
    db.collection(CRON_TASKS).countDocuments({ lockedTill: { $gt: now } }, { limit: 1 }),
  ]);
  const ran = await ranMeanwhile(db, signs);
  if (leader === null && held.every((count) => count === 0) && ran.length === 0) return;
  throw new TidemillError(
    'BUSY',
    'mongodash still runs on this database. Stop all of its instances; after a crash, its locks end within five minutes.',
  );
}

/**
 * Writes what mongodash has stored in the form that Tidemill reads. Call it when every instance of mongodash is stopped
 * (one that waits for its next cron task cannot be seen), and before the first start here: what was handled does not run again, what waits runs here, and the first
 * reconciliation finds every change since. Safe to repeat: records that are here already stay as they are.
 */
export async function takeOver(options: TakeOverOptions): Promise<TakenOver> {
  const {
    client,
    database = client.db().databaseName,
    dryRun = false,
    globalsCollection = '_mongodash_globals',
  } = options;
  const db = client.db(database, SAFE);
  const places = await placesOf(db);
  const meta = await metaOf(db, globalsCollection, places);
  const signs = await signsOfLife(db);
  const check = (): Promise<void> => refuseLive(db, globalsCollection, places, signs);
  if (!dryRun) await check();
  const isKnown = meta !== null || (await db.listCollections({ name: CRON_TASKS }).hasNext());
  const counts = new Map<string, TaskCount>();
  const leftOut: string[] = [];
  for (const { task, ...source } of places) {
    const trigger = triggerOf(meta, task);
    if (trigger === undefined) {
      leftOut.push(
        `reactive task "${task}" of ${source.collection}: mongodash has not stored its definition`,
      );
      continue;
    }
    const into = (options.tasks ?? tasksCollectionOf)(source.collection);
    const move = options.move === true;
    const taken = takeOverTask(db, { task, source, trigger, into, dryRun, move, refuseLive: check });
    for await (const count of taken) {
      counts.set(`${source.collection} ${task}`, count);
      options.onProgress?.([...counts.values()]);
    }
    const made = counts.get(`${source.collection} ${task}`)?.made ?? 0;
    if (made > 0)
      leftOut.push(
        `${made} records of reactive task "${task}": the new code was started before the take-over and has planned ` +
          'these documents; what mongodash had handled runs again',
      );
  }
  const locks = await db.collection('locks').countDocuments({ expiresAt: { $gt: new Date() } });
  if (locks > 0) leftOut.push(`${locks} locks that are held: they end by themselves`);
  const mill = new Tidemill({
    store: mongodb({ client, database }),
    monitoring: { enabled: false },
    logger: false,
  });
  try {
    if (!dryRun) await check();
    const cron = await takeOverCron(db, mill, { dryRun, move: options.move === true });
    // Moved tasks are gone, and were unchanged when they were deleted.
    if (!dryRun) await check();
    return {
      isKnown,
      reactiveTasks: [...counts.values()],
      cronTasks: cron.cronTasks,
      leftOut: [...leftOut, ...cron.leftOut],
    };
  } finally {
    await mill.stop();
  }
}

/** The same for the database that a URL names. */
export async function takeOverFrom(
  url: string,
  options: Omit<TakeOverOptions, 'client' | 'database'>,
): Promise<TakenOver> {
  const wait = /serverSelectionTimeoutMS=/iu.test(url) ? {} : { serverSelectionTimeoutMS: 3_000 };
  const client = new MongoClient(url, { appName: 'tidemill import', ...wait });
  try {
    return await takeOver({ ...options, client });
  } finally {
    await client.close();
  }
}
