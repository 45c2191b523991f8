import type { Db, Document } from 'mongodb';
import type { MongodbMill } from '../connection.js';
import { IMMEDIATELY, takenOverId, type CronState } from '../stored.js';

const DAY_MS = 86_400_000;
/** The interval of a task is in the code only: until `cronTask` tells it, there is one run. */
const UNKNOWN = { every: '3650d' };

interface CronDocument extends Document {
  readonly _id: string;
  readonly runSince?: unknown;
  readonly runImmediately?: boolean;
  readonly runLog?: readonly { startedAt: Date; finishedAt: Date | null; error: string | null }[];
}

type Dated = CronDocument & { readonly runSince: Date };

const isDated = (task: CronDocument): task is Dated => task.runSince instanceof Date;

function lastRunOf({ runLog = [] }: CronDocument): CronState['lastRun'] {
  const [last] = runLog;
  if (last === undefined || last.finishedAt === null) return null;
  return { startedAt: last.startedAt, finishedAt: last.finishedAt, error: last.error?.trim() ?? null };
}

/** The collection of mongodash's cron tasks. */
export const CRON_TASKS = 'cronTasks';

export interface TakenOverCron {
  /** Ids of cron tasks. */
  readonly cronTasks: readonly string[];
  /** What was left out, and why. */
  readonly leftOut: readonly string[];
}

/** Makes a schedule of each cron task that is due when mongodash would have run it. */
export async function takeOverCron(
  db: Db,
  mill: MongodbMill,
  { dryRun, move }: { readonly dryRun: boolean; readonly move: boolean },
): Promise<TakenOverCron> {
  const collection = db.collection<CronDocument>(CRON_TASKS);
  const all = await collection.find().sort({ _id: 1 }).toArray();
  const found = all.filter(isDated);
  const taken: TakenOverCron = {
    cronTasks: found.map(({ _id }) => _id),
    leftOut: all
      .filter((task) => !isDated(task))
      .map(({ _id }) => `cron task "${_id}": its runSince is not a date, so when it is due is unknown`),
  };
  if (dryRun) return taken;
  for (const task of found) {
    const { _id, runSince, runImmediately } = task;
    if ((await mill.schedules.get(_id)) === undefined) {
      const now = await mill.time();
      const isLate = runSince <= now;
      const state: CronState = { lastRun: lastRunOf(task), takenOver: !isLate };
      if (isLate || runImmediately === true)
        await mill.enqueue(_id, undefined, { id: takenOverId(_id, runSince), uniqueKey: IMMEDIATELY });
      await mill.schedule(UNKNOWN, _id, state, {
        startAt: isLate ? new Date(now.getTime() + DAY_MS) : runSince,
      });
    }
    if (move) await collection.deleteOne({ _id });
  }
  return taken;
}
