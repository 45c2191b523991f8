import type { Collection, Db, Document, Filter } from 'mongodb';
import type { MongodbMill } from '../connection.js';
import { IMMEDIATELY, takenOverId, type CronState } from '../stored.js';

const DAY_MS = 86_400_000;
/** The interval of a task is in the code only: until `cronTask` tells it, there is one run. */
const UNKNOWN = { every: '3650d' };

interface CronDocument extends Document {
  readonly _id: string;
  readonly runSince?: unknown;
  readonly runImmediately?: boolean;
  readonly lockedTill?: Date | null;
  readonly runLog?: readonly { startedAt: Date; finishedAt: Date | null; error: string | null }[];
}

type Dated = CronDocument & { readonly runSince: Date };

const isDated = (task: CronDocument): task is Dated => task.runSince instanceof Date;

function lastRunOf({ runLog = [] }: CronDocument): CronState['lastRun'] {
  const [last] = runLog;
  if (last === undefined || last.finishedAt === null) return null;
  return { startedAt: last.startedAt, finishedAt: last.finishedAt, error: last.error?.trim() ?? null };
}

/** The collection of our jobs, which `init` does not let anybody choose. */
const OUR_JOBS = 'tidemill_jobs';
/** The collection of mongodash's cron tasks. */
export const CRON_TASKS = 'cronTasks';

export interface TakenOverCron {
  /** Ids of cron tasks. */
  readonly cronTasks: readonly string[];
  /** What was left out, and why. */
  readonly leftOut: readonly string[];
}

/** Whether the schedule of a task can be written: not if the new code, or an earlier take-over, has made it. */
type Found = 'none' | 'ours' | 'stale' | 'ran' | 'made';

/** Our schedules of these names, as they are stored: a dry run opens no store. */
async function schedulesOf(db: Db, ids: readonly string[]): Promise<ReadonlyMap<string, CronState>> {
  const filter = { name: { $in: [...ids] }, repeatInterval: { $type: 'string' as const } };
  const rows = await db.collection(OUR_JOBS).find(filter).toArray();
  const own = rows.filter((row) => row['scheduleKey'] === row['name']);
  return new Map(own.map((row) => [row['name'] as string, (row['data'] ?? {}) as CronState]));
}

function foundOf({ runSince }: Dated, known: CronState | undefined): Found {
  if (known === undefined) return 'none';
  if (known.mongodash === undefined) return 'made';
  if (known.mongodash.dueAt.getTime() === runSince.getTime()) return 'ours';
  // `cronTask` takes the mark off when the new code has planned the task.
  return known.takenOver === undefined ? 'ran' : 'stale';
}

const REASONS = {
  made: 'the new code has made its schedule before the take-over, which does not change it',
  ran: 'mongodash has planned it again after the new code was started: both have run it',
} as const;

/** Makes a schedule of each cron task that is due when mongodash would have run it. */
export async function takeOverCron(
  db: Db,
  mill: MongodbMill,
  { dryRun, move }: { readonly dryRun: boolean; readonly move: boolean },
): Promise<TakenOverCron> {
  const collection = db.collection<CronDocument>(CRON_TASKS);
  const all = await collection.find().sort({ _id: 1 }).toArray();
  const dated = all.filter(isDated);
  const known = await schedulesOf(
    db,
    dated.map(({ _id }) => _id),
  );
  const leftOut = all
    .filter((task) => !isDated(task))
    .map(({ _id }) => `cron task "${_id}": its runSince is not a date, so when it is due is unknown`);
  const cronTasks: string[] = [];
  for (const task of dated) {
    const { _id, runSince } = task;
    const found = foundOf(task, known.get(_id));
    if (found === 'made' || found === 'ran') {
      leftOut.push(
        `cron task "${_id}": ${REASONS[found]}; in mongodash it was due ${runSince.toISOString()}`,
      );
      continue;
    }
    if (!dryRun && found !== 'ours') await write(mill, task);
    if (move && !dryRun && !(await removed(collection, task))) {
      leftOut.push(`cron task "${_id}": ${RAN}`);
      continue;
    }
    cronTasks.push(_id);
  }
  return { cronTasks, leftOut };
}

const RAN = 'mongodash has run it during the take-over: stop all of its instances, and repeat the command';

async function write(mill: MongodbMill, task: Dated): Promise<void> {
  const { _id, runSince, runImmediately } = task;
  const now = await mill.time();
  const isLate = runSince <= now;
  const state: CronState = {
    lastRun: lastRunOf(task),
    takenOver: !isLate,
    mongodash: { dueAt: runSince },
  };
  if (isLate || runImmediately === true)
    await mill.enqueue(_id, undefined, { id: takenOverId(_id, runSince), uniqueKey: IMMEDIATELY });
  await mill.schedule(UNKNOWN, _id, state, {
    startAt: isLate ? new Date(now.getTime() + DAY_MS) : runSince,
  });
}

/** Deletes a task, unless mongodash has run or locked it since it was read. */
async function removed(collection: Collection<CronDocument>, task: Dated): Promise<boolean> {
  const { _id, runSince, runLog, lockedTill } = task;
  const asRead = { _id, runSince, runLog: runLog ?? null, lockedTill: lockedTill ?? null };
  return (await collection.deleteOne(asRead as Filter<CronDocument>)).deletedCount === 1;
}

/** Returns the cron tasks that mongodash has run or locked since they were read: an instance of it lives. */
export async function ranMeanwhile(db: Db, before: ReadonlyMap<string, string>): Promise<readonly string[]> {
  const now = await signsOfLife(db);
  return [...now].filter(([id, sign]) => before.has(id) && before.get(id) !== sign).map(([id]) => id);
}

/** What changes with each run, by task. */
export async function signsOfLife(db: Db): Promise<ReadonlyMap<string, string>> {
  const all = await db.collection<CronDocument>(CRON_TASKS).find().toArray();
  return new Map(
    all.map(({ _id, runSince, runLog, lockedTill }) => [
      _id,
      JSON.stringify([runSince, runLog?.[0], lockedTill]),
    ]),
  );
}
