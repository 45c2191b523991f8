import type { Document } from 'mongodb';
import { OptionError, type MillEvents, type Task, type TaskContext } from '../../index.js';
import * as codes from './codes.js';
import {
  getCollection,
  opening,
  type Connection,
  type MongodbMill,
  type TestSettings,
} from './connection.js';
import { whenCronTasksSettled } from './cron-tasks.js';
import type { OnInfo, ReactiveTask, ReactiveTaskContext, ReactiveTaskHandler } from './types.js';

/** Where the tasks of this process are: name → source collection. */
export const sources: Map<string, string> = new Map();
let test: TestSettings | undefined;
let listening: MongodbMill | undefined;

/** Shortens debounces and polls. Call it before the first `reactiveTask`. */
export function configureForTesting({
  debounce = 10,
  minPollMs = 10,
}: {
  debounce?: number;
  minPollMs?: number;
  /** Has no effect: changes are planned at once. */
  minBatchIntervalMs?: number;
} = {}): void {
  if (listening !== undefined)
    throw new OptionError('configureForTesting: call it before reactiveTask() and startReactiveTasks().');
  test = { debounce, pollMs: minPollMs };
}

const idOf = ({ task, sourceDocId }: Task): string => `${task}/${String(sourceDocId)}`;

function report(mill: MongodbMill, onInfo: OnInfo, onError: Connection['onError']): void {
  const ofTask = (task: Task, what: string, code: string, more: Record<string, unknown> = {}): void =>
    onInfo({ message: `Reactive task '${task.task}' ${what}`, taskId: idOf(task), code, ...more });
  mill
    .on('task:start', ({ task }) => ofTask(task, 'started.', codes.CODE_REACTIVE_TASK_STARTED))
    .on('task:complete', ({ task, durationMs: duration }) =>
      ofTask(task, `finished in ${duration}ms.`, codes.CODE_REACTIVE_TASK_FINISHED, { duration }),
    )
    .on('task:skip', ({ task }) =>
      ofTask(task, 'finished (skipped - filter mismatch).', codes.CODE_REACTIVE_TASK_FINISHED, {
        duration: 0,
      }),
    )
    .on('task:fail', ({ task, error, durationMs: duration }) => {
      onError(error);
      const reason = error.message;
      ofTask(task, `failed in ${duration}ms.`, codes.CODE_REACTIVE_TASK_FAILED, { reason, duration });
    })
    .on('lease:lost', ({ tasks }) => {
      for (const task of tasks) ofTask(task, 'lock lost.', codes.CODE_REACTIVE_TASK_LOCK_LOST);
    })
    .on('leader:gained', () =>
      onInfo({ message: 'Reactive task planner started.', code: codes.CODE_REACTIVE_TASK_PLANNER_STARTED }),
    )
    .on('leader:lost', ({ reason }: MillEvents['leader:lost']) => {
      onInfo({
        message: 'Reactive task planner stopped.',
        code: codes.CODE_REACTIVE_TASK_PLANNER_STOPPED,
        reason,
      });
      if (mill.started)
        onInfo({ message: 'Leader lock lost.', code: codes.CODE_REACTIVE_TASK_LEADER_LOCK_LOST, reason });
    })
    .on('history:lost', ({ reason }) =>
      onInfo({
        message: `Change Stream error: ${reason}`,
        code: codes.CODE_REACTIVE_TASK_PLANNER_STREAM_ERROR,
      }),
    )
    .on('reconcile:start', ({ tasks, collection }) =>
      onInfo({
        message: 'Reconciliation started.',
        code: codes.CODE_REACTIVE_TASK_PLANNER_RECONCILIATION_STARTED,
        taskCount: tasks.length,
        collection,
      }),
    )
    .on('reconcile:complete', ({ collection }) =>
      onInfo({
        message: 'Reconciliation complete.',
        code: codes.CODE_REACTIVE_TASK_PLANNER_RECONCILIATION_FINISHED,
        collection,
      }),
    );
}

/** The mill of reactive tasks, whose events go to `onInfo` and `onError`. */
export function reactiveMill(): MongodbMill {
  const connection = opening();
  const mill = connection.reactive(test);
  if (listening !== mill) report((listening = mill), connection.onInfo, connection.onError);
  return mill;
}

/** A completion without a session has a transaction of its own. */
function contextOf<T extends Document>(context: TaskContext<T>, mill: MongodbMill): ReactiveTaskContext<T> {
  const { docId, task, attempt, watchedValues, signal, getDocument, deferCurrent, throttleAll, complete } =
    context;
  let isCompleted = false;
  return {
    docId: docId as never,
    task,
    attempt,
    watchedValues,
    signal,
    getDocument: getDocument,
    deferCurrent,
    throttleAll,
    markCompleted: async ({ session } = {}) => {
      if (session !== undefined) return complete({ transaction: session });
      if (isCompleted) return;
      await mill.withTransaction((transaction) => complete({ transaction }));
      isCompleted = true;
    },
  };
}

const handlerOf =
  <T extends Document>(handler: ReactiveTaskHandler<T>, mill: MongodbMill) =>
  (context: TaskContext<T>): Promise<void> =>
    handler(contextOf(context, mill));

/** Defines a task on a collection. */
export async function reactiveTask<T extends Document = Document>(
  definition: ReactiveTask<T>,
): Promise<void> {
  const mill = reactiveMill();
  const connection = opening();
  const { collection: given, handler, watchProjection, filter, debounce, ...rest } = definition;
  const source = typeof given === 'string' ? getCollection(given) : given;
  const name = source.collectionName;
  if (sources.has(definition.task))
    throw new OptionError(
      `reactiveTask(${JSON.stringify(definition.task)}): a task of this name is already defined.`,
    );
  const isWhole = watchProjection === undefined || Object.keys(watchProjection).length === 0;
  const wait = test?.debounce ?? debounce;
  const added = mill.reactiveTask<T>({
    ...rest,
    collection: name,
    ...(source.dbName === connection.databaseName ? {} : { database: source.dbName }),
    ...(isWhole ? {} : { watchProjection: watchProjection }),
    ...(filter === undefined ? {} : { filter: filter }),
    ...(wait === undefined ? {} : { debounce: wait }),
    handler: handlerOf(handler, mill),
  });
  sources.set(definition.task, name);
  try {
    await added;
  } catch (error) {
    sources.delete(definition.task);
    throw error;
  }
  connection.onInfo({
    message: `Initialized ${definition.task}`,
    code: codes.CODE_REACTIVE_TASK_INITIALIZED,
    task: definition.task,
    sourceCollection: name,
  });
}

/** Starts planning and running reactive tasks. */
export async function startReactiveTasks(): Promise<void> {
  const isPlannerOnly = opening().options.reactiveTaskConcurrency === 0;
  await reactiveMill().start(isPlannerOnly ? { roles: ['plan', 'maintain'] } : {});
}

/** Stops; resolves when no task runs here. Also waits for `stopCronTasks`, after which clients are closed. */
export async function stopReactiveTasks(): Promise<void> {
  await Promise.all([listening?.stop(), whenCronTasksSettled()]);
}

/** Returns a prom-client registry with all metrics; null if they are off or prom-client is missing. */
export const getPrometheusMetrics = (): ReturnType<MongodbMill['getPrometheusMetrics']> =>
  reactiveMill().getPrometheusMetrics();
