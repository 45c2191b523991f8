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
import type { PublishedPlan } from '../../store/reactive/reactive.js';
import { BSON_OPTIONS, type Mongo } from '../context.js';
import {
  exactIdIndex,
  faultText,
  faultyIndexes,
  formerIndexes,
  indexScript,
  type IndexFault,
  taskIndexes,
} from '../indexes.js';
import { timeOf } from '../reactive/feed.js';
import { messagesScript, wakesOf } from './messages.js';
import { ownCollections, type Owned } from '../own-collections.js';
import type { MongodbSources } from '../reactive/sources.js';

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
  const places = await Promise.all((await plans()).map(({ plan }) => sources.open(plan.source)));
  const watched = new Map(places.map((place) => [place.tasks.namespace, place]));
  const collections = [
    ...ownCollections(mongo),
    ...[...watched.values()].flatMap(({ source, tasks, collation }): Owned[] => [
      [tasks, taskIndexes],
      ...(collation === undefined ? [] : [[source, [exactIdIndex]] as const]),
    ]),
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
  verdicts.push(...(await judgeFormer(mongo)), ...judgeMessages(mongo));
  return verdicts.length > 0
    ? verdicts
    : [fine(`as they should be on ${looked.map(({ collection }) => collection.collectionName).join(', ')}`)];
}

/** Without the collection of messages, the server wakes each idle instance for each write. */
function judgeMessages({ jobs, wakes, transactions }: Mongo): readonly Verdict[] {
  if (wakes !== undefined || !transactions) return [];
  const name = wakesOf(jobs.collectionName);
  const found = `no capped collection ${name}: each idle instance follows a change stream, which costs something per write`;
  return [warning(found, messagesScript(name))];
}

/** Indexes that only earlier versions need: each write pays for them. */
async function judgeFormer(mongo: Mongo): Promise<readonly Verdict[]> {
  const jobs = mongo.jobs as unknown as Collection;
  const left = await formerIndexes(jobs);
  if (left.length === 0) return [];
  const found = `${jobs.collectionName}: ${left.join(', ')} served earlier versions, and each write still pays for them`;
  const drops = left.map((name) => dropping(jobs, name));
  return [
    destroying(warning(found, ['// once no instance of an earlier version runs:', ...drops].join('\n'))),
  ];
}

const dropping = ({ collectionName }: Collection, index: string): string =>
  `db.getCollection(${JSON.stringify(collectionName)}).dropIndex(${JSON.stringify(index)});`;

function mending(collection: Collection, { plan, kind }: IndexFault, home: string): string {
  const { dbName, collectionName } = collection;
  return [
    ...(dbName === home ? [] : [`use ${dbName}`]),
    ...(kind === 'different' ? [dropping(collection, plan.name)] : []),
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
  const [first, last, [stats], planners] = await Promise.all([
    end(1),
    end(-1),
    oplog.aggregate([{ $collStats: { storageStats: {} } }]).toArray(),
    globals.find({ kind: { $in: ['planner', 'planner-part'] } }).toArray(),
  ]);
  const { size = 0, maxSize = 1 } = (stats?.['storageStats'] ?? {}) as { size?: number; maxSize?: number };
  const tokens = planners.map((row) => (row['tokens'] ?? {}) as Record<string, unknown>);
  const resume = tokens.flatMap((one) => Object.values(one)).flatMap(secondsOf);
  return {
    firstSeconds: secondsIn(first),
    lastSeconds: secondsIn(last),
    fullShare: size / maxSize,
    ...(resume.length === 0 ? {} : { resumeSeconds: Math.min(...resume) }),
  };
}

const secondsIn = (entry: Document | null): number => Number(entry?.['seconds'] ?? 0);

const secondsOf = (token: unknown): readonly number[] => {
  const time = timeOf(token);
  return time === undefined ? [] : [time.t];
};

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
