import { ObjectId, type Document, type Filter } from 'mongodb';
import { OptionError } from '../../index.js';
import { CODE_MANUAL_TRIGGER } from './codes.js';
import { opening } from './connection.js';
import { getCronTasksList, scheduleCronTaskImmediately } from './cron-tasks.js';
import {
  getPrometheusMetrics,
  reactiveMill,
  reactiveTask,
  sources,
  startReactiveTasks,
  stopReactiveTasks,
} from './reactive-tasks.js';
import { countReactiveTasks, getReactiveTasks, retryReactiveTasks } from './task-records.js';
import type {
  CronPagedResult,
  CronTaskQuery,
  CronTaskRecord,
  PagedResult,
  ReactiveTask,
  ReactiveTaskQuery,
  ReactiveTaskRecord,
  ReactiveTaskStatus,
} from './types.js';

/** The scheduler of this process, for those that pass it on. */
export interface ReactiveTaskScheduler {
  addTask<T extends Document>(definition: ReactiveTask<T>): Promise<void>;
  start(): Promise<void>;
  stop(): Promise<void>;
  getPrometheusMetrics: typeof getPrometheusMetrics;
}

export const _scheduler: ReactiveTaskScheduler = {
  addTask: reactiveTask,
  start: startReactiveTasks,
  stop: stopReactiveTasks,
  getPrometheusMetrics,
};

interface Counts {
  success: number;
  failed: number;
  processing: number;
  pending: number;
  error: number;
}

export interface Info {
  databaseName: string;
  reactiveTasks: { name: string; collection: string; stats: Counts }[];
  cronTasks: {
    id: string;
    status: CronTaskRecord['status'];
    lastRunError: string | null | undefined;
    nextRunAt: Date;
  }[];
}

export interface ListParams {
  limit?: number;
  skip?: number;
  task?: string;
  collection?: string;
  status?: string;
  errorMessage?: string;
  hasError?: string;
  sourceDocId?: string;
}

const MOST = 500;
const COUNTED = {
  completed: 'success',
  failed: 'failed',
  processing: 'processing',
  processing_dirty: 'processing',
  pending: 'pending',
} as const;

const whole = (value: unknown): number => (Number.isFinite(Number(value)) ? Math.floor(Number(value)) : 0);
const limitOf = (value: unknown): number => Math.min(Math.max(whole(value) || 50, 1), MOST);
const skipOf = (value: unknown): number => Math.max(whole(value), 0);

function countsOf(counted: Partial<Record<ReactiveTaskStatus, number>>): Counts {
  const counts: Counts = { success: 0, failed: 0, processing: 0, pending: 0, error: 0 };
  for (const [status, count] of Object.entries(counted))
    counts[COUNTED[status as ReactiveTaskStatus]] += count;
  return counts;
}

/** An id as text may be that of an ObjectId or of a number. */
function byId(text: string): Filter<unknown> {
  const id = text.trim();
  const ids: unknown[] = [id];
  if (/^[\da-f]{24}$/iu.test(id)) ids.push(new ObjectId(id));
  if (id !== '' && !Number.isNaN(Number(id))) ids.push(Number(id));
  return { _id: { $in: ids } } as Filter<unknown>;
}

/** What a page for operators asks for. */
export class OperationalTaskController {
  /** There is one scheduler in a process, so it need not be passed. */
  constructor(scheduler: ReactiveTaskScheduler = _scheduler) {
    if (scheduler !== _scheduler) throw new OptionError('OperationalTaskController: pass _scheduler.');
  }

  async getReactiveTasks(params: ListParams): Promise<
    PagedResult<ReactiveTaskRecord> & {
      stats: { statuses: { _id: string; count: number }[]; errorCount: number };
    }
  > {
    const { task, collection, status, errorMessage, hasError, sourceDocId } = params;
    const page = { limit: limitOf(params.limit), skip: skipOf(params.skip) };
    const names = [...sources].filter(([, source]) => source === collection).map(([name]) => name);
    if (!task && collection && names.length === 0)
      return {
        items: [],
        total: 0,
        limit: page.limit,
        offset: page.skip,
        stats: { statuses: [], errorCount: 0 },
      };
    const scope: ReactiveTaskQuery = {
      ...(task ? { task } : collection ? { task: names } : {}),
      ...(sourceDocId ? { sourceDocFilter: byId(sourceDocId) } : {}),
    };
    const query: ReactiveTaskQuery = {
      ...scope,
      ...(status ? { status: status.split(',').map((one) => one.trim() as ReactiveTaskStatus) } : {}),
      ...(errorMessage ? { errorMessage } : {}),
      ...(hasError === undefined ? {} : { hasError: hasError === 'true' }),
    };
    const [found, stats] = await Promise.all([getReactiveTasks(query, page), this.#stats(scope)]);
    return { ...found, items: found.items.map(({ lastObservedValues, ...item }) => item), stats };
  }

  async #stats(
    scope: ReactiveTaskQuery,
  ): Promise<{ statuses: { _id: string; count: number }[]; errorCount: number }> {
    const names = Object.keys(COUNTED) as ReactiveTaskStatus[];
    const counts = await Promise.all(names.map((status) => countReactiveTasks({ ...scope, status })));
    const statuses = names
      .map((_id, at) => ({ _id, count: counts[at] ?? 0 }))
      .filter(({ count }) => count > 0);
    return { statuses, errorCount: await countReactiveTasks({ ...scope, hasError: true }) };
  }

  async retryReactiveTasks(body: {
    task?: string;
    status?: string;
    errorMessage?: string;
    _id?: string;
    sourceDocId?: string;
  }): Promise<{ modifiedCount: number }> {
    const { sourceDocId, status, ...rest } = body;
    const answer = await retryReactiveTasks({
      ...rest,
      ...(status ? { status: status as ReactiveTaskStatus } : {}),
      ...(sourceDocId ? { sourceDocFilter: byId(sourceDocId) } : {}),
    });
    const message = `Manual intervention: retry tasks matching ${JSON.stringify(body)}`;
    opening().onInfo({ message, code: CODE_MANUAL_TRIGGER, action: 'retry', params: body, ...answer });
    return answer;
  }

  getCronTasks(params: CronTaskQuery): Promise<CronPagedResult<CronTaskRecord>> {
    return getCronTasksList({ ...params, limit: limitOf(params.limit), skip: skipOf(params.skip) });
  }

  async triggerCronTask({ taskId }: { taskId: string }): Promise<{ success: boolean }> {
    if (!taskId) throw new OptionError('triggerCronTask: taskId is required.');
    await scheduleCronTaskImmediately(taskId);
    const message = `Manual intervention: triggered cron task '${taskId}'`;
    opening().onInfo({ message, code: CODE_MANUAL_TRIGGER, action: 'triggerCron', taskId });
    return { success: true };
  }

  async getInfo(): Promise<Info> {
    const stats = sources.size === 0 ? [] : await reactiveMill().tasks.stats();
    const [cron, errors] = await Promise.all([
      getCronTasksList({ limit: 1_000 }),
      Promise.all(
        [...sources.keys()].map(
          async (task) => [task, await countReactiveTasks({ task, hasError: true })] as const,
        ),
      ),
    ]);
    const withErrors = new Map(errors);
    return {
      databaseName: opening().databaseName,
      reactiveTasks: [...sources]
        .map(([name, collection]) => {
          const counted = stats.find(({ task }) => task === name)?.counts;
          return {
            name,
            collection,
            stats: { ...countsOf(counted ?? {}), error: withErrors.get(name) ?? 0 },
          };
        })
        .sort((a, b) => a.name.localeCompare(b.name)),
      cronTasks: cron.items.map(({ _id: id, status, lastRun, nextRunAt }) => ({
        id,
        status,
        lastRunError: lastRun?.error,
        nextRunAt,
      })),
    };
  }
}
