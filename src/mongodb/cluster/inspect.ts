/** The checks of `mill.doctor()` on MongoDB. */
import type { Collection, Document } from 'mongodb';
import {
  check,
  destroying,
  failure,
  fine,
  judgeVersion,
  skipped,
  warning,
  type Finding,
  type Verdict,
} from '../../store/inspect.js';
import type { PublishedPlan } from '../../store/reactive.js';
import { BSON_OPTIONS, type Mongo } from '../context.js';
import { faultText, faultyIndexes, indexScript, type IndexFault } from '../indexes.js';
import { ownCollections, type Owned } from '../own-collections.js';
import { taskIndexes, type MongodbSources } from '../reactive/sources.js';

const OLDEST_VERSION = [6, 0] as const;
/** Reactive tasks resume where planning stopped, if the oplog reaches back that far. */
const LEAST_WINDOW_HOURS = 24;
/** An oplog that is not full yet reaches back to its beginning, however short that is. */
const FULL_SHARE = 0.9;

export interface Inspected {
  readonly mongo: Mongo;
  readonly sources: MongodbSources;
  readonly plans: () => Promise<readonly PublishedPlan[]>;
}

export async function inspect(what: Inspected): Promise<readonly Finding[]> {
  const { mongo } = what;
  return [
    ...(await check('version', async () => {
      const { version } = await mongo.client.db('admin').command({ buildInfo: 1 }, BSON_OPTIONS);
      return judgeVersion('MongoDB', String(version), OLDEST_VERSION);
    })),
    ...(await check('topology', () => judgeTopology(mongo))),
    ...(await check('indexes', () => judgeIndexes(what))),
    ...(await check('oplog', () => judgeHistory(what))),
  ];
}

async function judgeTopology({ client, sharded, transactions }: Mongo): Promise<Verdict> {
  if (sharded) return fine('a sharded cluster, behind mongos');
  if (!transactions)
    return warning(
      'a standalone server: no wake-ups, so jobs start up to a second late, and neither transactions nor reactive tasks',
      'restart mongod with --replSet rs0, then once: mongosh --eval "rs.initiate()"',
    );
  const hello = await client.db('admin').command({ hello: 1 }, BSON_OPTIONS);
  const members = [hello['hosts'], hello['passives']].flatMap((hosts) => (hosts ?? []) as string[]).length;
  return fine(
    `replica set ${String(hello['setName'])} of ${String(members)} ${members === 1 ? 'node' : 'nodes'}`,
  );
}

async function judgeIndexes({ mongo, sources, plans }: Inspected): Promise<readonly Verdict[]> {
  const { dbName } = mongo.jobs;
  const places = (await plans()).map(({ plan }) => sources.place(plan.source).tasks);
  const watched = new Map(places.map((tasks) => [tasks.namespace, tasks]));
  const collections = [
    ...ownCollections(mongo),
    ...[...watched.values()].map((tasks): Owned => [tasks, taskIndexes]),
  ];
  const looked = await Promise.all(
    collections.map(async ([collection, wanted]) => ({
      collection,
      faults: await faultyIndexes(collection, wanted),
    })),
  );
  if (looked.every(({ faults }) => faults === undefined))
    return [
      warning(
        `nothing of Tidemill is in the database ${dbName} yet`,
        'start your application once, which creates the collections; or correct the database in the URL',
      ),
    ];
  const verdicts = looked.flatMap(({ collection, faults }) =>
    (faults ?? []).map((fault) => {
      const verdict = failure(faultText(collection, fault), mending(collection, fault, dbName));
      return fault.kind === 'different' ? destroying(verdict) : verdict;
    }),
  );
  return verdicts.length > 0
    ? verdicts
    : [fine(`as they should be on ${looked.map(({ collection }) => collection.collectionName).join(', ')}`)];
}

function mending(collection: Collection, { plan, kind }: IndexFault, home: string): string {
  const { dbName, collectionName } = collection;
  const drop = `db.getCollection(${JSON.stringify(collectionName)}).dropIndex(${JSON.stringify(plan.name)});`;
  return [
    ...(dbName === home ? [] : [`use ${dbName}`]),
    ...(kind === 'different' ? [drop] : []),
    indexScript(collectionName, [plan]),
  ].join('\n');
}

interface History {
  readonly firstSeconds: number;
  readonly lastSeconds: number;
  readonly fullShare: number;
  /** The resume point in seconds since 1970; the oldest one if there are several databases. */
  readonly resumeSeconds?: number;
}

async function judgeHistory({ mongo, plans }: Inspected): Promise<Verdict> {
  if (mongo.sharded) return skipped('each shard has its own oplog; check them one by one');
  if (!mongo.transactions) return skipped('a standalone server has none');
  const reactive = (await plans()).length > 0;
  return judgeOplog(await readHistory(mongo), reactive);
}

async function readHistory({ client, globals }: Mongo): Promise<History> {
  const oplog = client.db('local').collection('oplog.rs', BSON_OPTIONS);
  const end = (order: 1 | -1): Promise<Document | null> =>
    oplog.findOne({}, { sort: { $natural: order }, projection: { seconds: { $tsSecond: '$ts' } } });
  const [first, last, [stats], planner] = await Promise.all([
    end(1),
    end(-1),
    oplog.aggregate([{ $collStats: { storageStats: {} } }]).toArray(),
    globals.findOne({ _id: 'planner' }),
  ]);
  const { size = 0, maxSize = 1 } = (stats?.['storageStats'] ?? {}) as { size?: number; maxSize?: number };
  const resume = Object.values((planner?.['tokens'] ?? {}) as Document).flatMap(secondsOf);
  return {
    firstSeconds: secondsIn(first),
    lastSeconds: secondsIn(last),
    fullShare: size / maxSize,
    ...(resume.length === 0 ? {} : { resumeSeconds: Math.min(...resume) }),
  };
}

const secondsIn = (entry: Document | null): number => Number(entry?.['seconds'] ?? 0);

/** A resume token is a key string: a byte for the type of its first value, then that value, the cluster time. */
function secondsOf(token: unknown): number[] {
  const data: unknown = (token as { _data?: unknown } | null)?._data;
  const hex = typeof data === 'string' ? /^82([0-9a-f]{8})/iu.exec(data)?.[1] : undefined;
  return hex === undefined ? [] : [Number.parseInt(hex, 16)];
}

const hours = (seconds: number): string =>
  seconds < 3_600 ? `${String(Math.round(seconds / 60))} min` : `${(seconds / 3_600).toFixed(1)} h`;

export function judgeOplog(history: History, reactive: boolean): Verdict {
  const { firstSeconds, lastSeconds, fullShare, resumeSeconds } = history;
  const windowSeconds = lastSeconds - firstSeconds;
  const window = `the oplog reaches back ${hours(windowSeconds)}`;
  const keep = `db.adminCommand({ replSetResizeOplog: 1, minRetentionHours: ${String(2 * LEAST_WINDOW_HOURS)} })`;
  if (resumeSeconds !== undefined && resumeSeconds < firstSeconds)
    return warning(
      `${window}, and planning stopped before that: changes were missed, and the next leader reconciles every document`,
      keep,
    );
  const behind =
    resumeSeconds === undefined
      ? ''
      : `; planning is ${hours(Math.max(0, lastSeconds - resumeSeconds))} behind`;
  if (fullShare < FULL_SHARE) return fine(`${window}, to its beginning${behind}`);
  if (windowSeconds >= LEAST_WINDOW_HOURS * 3_600 || !reactive) return fine(`${window}${behind}`);
  return warning(
    `${window}${behind}: if all instances are down for longer, every document is reconciled`,
    keep,
  );
}
