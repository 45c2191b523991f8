import {
  OptionError,
  type Attempt,
  type FoundTask,
  type TasksFilter,
  type TasksPageOptions,
} from '../../index.js';
import { reactiveMill, sources } from './reactive-tasks.js';
import type { PagedResult, PaginationOptions, ReactiveTaskQuery, ReactiveTaskRecord } from './types.js';

const SORTS: Readonly<Record<string, keyof NonNullable<TasksPageOptions['sort']>>> = {
  nextRunAt: 'runAt',
  dueAt: 'runAt',
  createdAt: 'createdAt',
  updatedAt: 'updatedAt',
};
const COMPLETED: readonly Attempt['status'][] = ['completed', 'skipped'];
const FAILED: readonly Attempt['status'][] = ['failed', 'crashed'];

type History = NonNullable<ReactiveTaskRecord['executionHistory']>;

const historyOf = (attempts: readonly Attempt[]): History =>
  attempts
    .filter(({ status }) => COMPLETED.includes(status) || FAILED.includes(status))
    .map(({ status, finishedAt: at, durationMs, error }) => ({
      at,
      status: FAILED.includes(status) ? 'failed' : 'completed',
      durationMs,
      ...(error === undefined ? {} : { error: error.message }),
    }));

function recordOf(task: FoundTask): ReactiveTaskRecord {
  const { status, lastFinalizedAt = null } = task;
  const hasEnded = status === 'completed' || status === 'failed';
  return {
    _id: task.id,
    task: task.task,
    sourceDocId: task.sourceDocId as never,
    status,
    attempts: task.attempts,
    nextRunAt: hasEnded ? null : task.runAt,
    dueAt: task.initialScheduledAt,
    createdAt: task.createdAt,
    updatedAt: task.updatedAt,
    startedAt: task.lockedAt,
    completedAt: status === 'completed' ? lastFinalizedAt : null,
    firstErrorAt: task.firstErrorAt ?? null,
    lastError: task.error ?? null,
    lastFinalizedAt,
    lastObservedValues: (task.lastObservedValues ?? null) as Record<string, unknown> | null,
    lastSuccess: task.lastSuccess ?? null,
    executionHistory: historyOf(task.executionHistory ?? []),
  };
}

/** Only tasks of this process are meant; a name that it does not have is a mistake. */
function namesOf(task: ReactiveTaskQuery['task']): readonly string[] {
  if (task === undefined) return [...sources.keys()];
  const names = [task].flat();
  const unknown = names.find((name) => !sources.has(name));
  if (unknown === undefined) return names;
  throw new OptionError(`No reactive task ${JSON.stringify(unknown)} is defined in this process.`);
}

function filterOf({ task, _id, ...rest }: ReactiveTaskQuery): TasksFilter {
  const ids = _id === undefined ? undefined : ([_id].flat() as unknown[]);
  const texts = ids?.every((id) => typeof id === 'string');
  return {
    ...(rest as TasksFilter),
    task: namesOf(task),
    ...(ids === undefined ? {} : texts === true ? { id: ids } : { _id: ids }),
  };
}

function sortOf(sort: PaginationOptions['sort']): NonNullable<TasksPageOptions['sort']> {
  const { field, direction } = sort ?? { field: 'nextRunAt', direction: 1 };
  const ours = SORTS[field];
  if (ours !== undefined) return { [ours]: direction };
  throw new OptionError(
    `getReactiveTasks: sort.field must be one of ${Object.keys(SORTS).join(', ')}; got ${JSON.stringify(field)}.`,
  );
}

/** Returns the tasks that match, of those that this process defines. */
export async function getReactiveTasks(
  query: ReactiveTaskQuery,
  { limit = 50, skip: offset = 0, sort }: PaginationOptions = {},
): Promise<PagedResult<ReactiveTaskRecord>> {
  const mill = reactiveMill();
  if (sources.size === 0) return { items: [], total: 0, limit, offset };
  const page = await mill.tasks.find(filterOf(query), {
    limit,
    skip: offset,
    sort: sortOf(sort),
    total: true,
  });
  return { items: page.items.map(recordOf), total: page.total ?? 0, limit, offset };
}

/** Counts them. */
export async function countReactiveTasks(query: ReactiveTaskQuery): Promise<number> {
  const mill = reactiveMill();
  return sources.size === 0 ? 0 : mill.tasks.count(filterOf(query));
}

/** Runs them again. */
export async function retryReactiveTasks(query: ReactiveTaskQuery): Promise<{ modifiedCount: number }> {
  const mill = reactiveMill();
  if (sources.size === 0) return { modifiedCount: 0 };
  return { modifiedCount: (await mill.tasks.retryMany(filterOf(query))).count };
}

/** All tasks that match, page by page. */
export async function* eachTask(filter: TasksFilter): AsyncGenerator<ReactiveTaskRecord> {
  const { tasks } = reactiveMill();
  for (let cursor: string | undefined; ;) {
    const page = await tasks.find(filter, {
      limit: 1_000,
      sort: { createdAt: 1 },
      ...(cursor === undefined ? {} : { cursor }),
    });
    yield* page.items.map(recordOf);
    if (page.next === null) return;
    cursor = page.next;
  }
}
