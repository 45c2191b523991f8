import { AsyncLocalStorage } from 'node:async_hooks';
import { FatalError, LockTakenError, OptionError, TidemillError, type Schedule } from '../../index.js';
import {
  CODE_CRON_TASK_FAILED,
  CODE_CRON_TASK_FINISHED,
  CODE_CRON_TASK_SCHEDULED,
  CODE_CRON_TASK_STARTED,
} from './codes.js';
import { opening, whenOpened, type Connection } from './connection.js';
import { nextRun, type NextRun } from './cron-interval.js';
import { IMMEDIATELY, takenOverId, type CronState } from './stored.js';
import type {
  CronPagedResult,
  CronTaskQuery,
  CronTaskRecord,
  Interval,
  TaskCaller,
  TaskFunction,
  TaskId,
} from './types.js';

interface Registered {
  readonly interval: Interval;
  readonly task: TaskFunction;
  /** False while `cronTaskFilter` refuses it. */
  isServed: boolean;
  /** Kept in its schedule. */
  origin?: Pick<CronState, 'mongodash'>;
}

const FIRST = 10;
const ASK_AGAIN_MS = 5_000;
const TAKEN_MS = 1_000;
const CALL: TaskCaller = (task) => task();

const tasks = new Map<TaskId, Registered>();
/** Tasks that run here, by `runCronTask` or by the scheduler. */
const running = new Set<TaskId>();
const inside = new AsyncLocalStorage<TaskId>();
let isOn: boolean | undefined;
let changing: Promise<void> = Promise.resolve();

const lockOf = (taskId: TaskId): string => `cron task ${taskId}`;
const stateOf = (schedule: Schedule | undefined): CronState =>
  (schedule?.data ?? { lastRun: null }) as CronState;
const whereOf = (taskId: TaskId): string => `cronTask(${JSON.stringify(taskId)})`;

function isAllowed(connection: Connection, taskId: TaskId): boolean {
  try {
    return connection.options.cronTaskFilter?.({ taskId }) ?? true;
  } catch (error) {
    connection.onError(error as Error);
    return false;
  }
}

/** Makes the mill follow `isOn`. Changes are applied in turn. */
function follow(connection: Connection): void {
  changing = changing
    .then(async () => {
      const wanted = (isOn ??= connection.options.runCronTasks ?? true) && tasks.size > 0;
      if (wanted === connection.cron.started) return;
      if (!wanted) return connection.cron.stop();
      connection.onInfo({ message: 'Cron tasks processing started', code: CODE_CRON_TASK_STARTED });
      await connection.cron.start({ roles: ['work', 'maintain'] });
    })
    .catch((error: unknown) => connection.onError(error as Error));
}

async function nextOrLater(connection: Connection, taskId: TaskId, interval: Interval): Promise<NextRun> {
  const now = await connection.base.time();
  const { cronExpressionParserOptions } = connection.options;
  try {
    return await nextRun(whereOf(taskId), interval, now, cronExpressionParserOptions);
  } catch (error) {
    // A task without a next run would end in silence.
    connection.onError(error as Error);
    return nextRun(whereOf(taskId), ASK_AGAIN_MS, now);
  }
}

/** Returns when the task runs next. The schedule itself moves when the run in progress, if there is one, has ended. */
async function plan({ base }: Connection, taskId: TaskId, next: NextRun, state: CronState): Promise<Date> {
  const { when, startAt, timezone } = next;
  await base.schedule(when, taskId, state, { timezone, ...(startAt === undefined ? {} : { startAt }) });
  return startAt ?? (await base.schedules.next(taskId, 1))[0] ?? new Date(NaN);
}

/** Runs the task once, and plans its next run by the time at which this one ended. */
async function perform(
  connection: Connection,
  taskId: TaskId,
  { task, interval, origin }: Registered,
): Promise<void> {
  const { onInfo } = connection;
  const startedAt = new Date();
  onInfo({ message: `Cron task '${taskId}' started.`, taskId, code: CODE_CRON_TASK_STARTED });
  let failure: { readonly error: unknown } | undefined;
  try {
    await inside.run(taskId, async () => task());
  } catch (error) {
    failure = { error };
  }
  const finishedAt = new Date();
  const duration = finishedAt.getTime() - startedAt.getTime();
  if (failure === undefined)
    onInfo({
      message: `Cron task '${taskId}' finished in ${duration} ms.`,
      taskId,
      code: CODE_CRON_TASK_FINISHED,
      duration,
    });
  else {
    const { error } = failure;
    const reason = error instanceof Error ? error.message : String(error);
    onInfo({
      message: `Cron task '${taskId}' failed in ${duration} ms.`,
      taskId,
      code: CODE_CRON_TASK_FAILED,
      reason,
      duration,
    });
  }
  const next = await nextOrLater(connection, taskId, interval);
  const error = failure === undefined ? null : String(failure.error);
  const nextRunDate = await plan(connection, taskId, next, {
    lastRun: { startedAt, finishedAt, error },
    ...origin,
  });
  const message = `Cron task '${taskId}' scheduled to ${nextRunDate.toISOString()}.`;
  onInfo({ message, taskId, code: CODE_CRON_TASK_SCHEDULED, nextRunDate });
  if (failure !== undefined) throw failure.error;
}

/** `taken`: another run of it is under way, so this one has not begun. */
type Performed = { readonly kind: 'ran' | 'taken' } | { readonly kind: 'threw'; readonly error: unknown };

/**
 * Runs the task under its lock: asked for and scheduled runs exclude each other in the whole cluster. A run that has
 * ended counts, even if its lock was lost: a second attempt would do the same work again.
 */
async function performAlone(
  connection: Connection,
  taskId: TaskId,
  registered: Registered,
): Promise<Performed> {
  const caller = connection.options.cronTaskCaller ?? connection.options.taskCaller ?? CALL;
  let performed: Performed = { kind: 'taken' };
  const work = async (): Promise<void> => {
    running.add(taskId);
    try {
      await caller(() => perform(connection, taskId, registered));
      performed = { kind: 'ran' };
    } catch (error) {
      performed = { kind: 'threw', error };
    } finally {
      running.delete(taskId);
    }
  };
  try {
    await connection.base.withLock(lockOf(taskId), work, { wait: 0 });
  } catch (error) {
    const hasRun = (performed as Performed).kind !== 'taken';
    if (!hasRun && !(error instanceof LockTakenError)) throw error;
    if (hasRun) connection.onError(error as Error);
  }
  return performed;
}

/** Gives the task a handler here. A run that cannot start is left to another instance, or to a later time. */
function serve(connection: Connection, taskId: TaskId, registered: Registered): void {
  registered.isServed = true;
  connection.cron.job(taskId, { concurrency: 1, retention: { failed: '7d' } }, async (job) => {
    if (!isAllowed(connection, taskId)) {
      job.defer(ASK_AGAIN_MS);
      return;
    }
    const performed = await performAlone(connection, taskId, registered);
    if (performed.kind === 'taken') job.defer(TAKEN_MS);
    if (performed.kind !== 'threw') return;
    const { error } = performed;
    connection.onError(error as Error);
    // The next attempt is the next run.
    throw new FatalError(error instanceof Error ? error.message : String(error), { cause: error });
  });
}

/** Asks again for tasks that `cronTaskFilter` has refused. */
function askAgain(connection: Connection): void {
  const timer = setInterval(() => {
    const refused = [...tasks].filter(([, { isServed }]) => !isServed);
    for (const [taskId, registered] of refused)
      if (isAllowed(connection, taskId)) serve(connection, taskId, registered);
    if (refused.every(([, { isServed }]) => isServed)) clearInterval(timer);
  }, ASK_AGAIN_MS);
  timer.unref();
}

/** Plans the first run of a task that is new, or whose interval has changed. */
async function planFirst(connection: Connection, taskId: TaskId, registered: Registered): Promise<void> {
  const { interval } = registered;
  const { base } = connection;
  const now = await base.time();
  const next = await nextRun(whereOf(taskId), interval, now, connection.options.cronExpressionParserOptions);
  const stored = await base.schedules.get(taskId);
  const state = stateOf(stored);
  const dueAt = stored?.nextRunAt ?? undefined;
  const text = typeof next.when === 'string' ? next.when : `@every ${String(next.when.every)}ms`;
  const isSame = stored?.cron === text && (next.startAt !== undefined || stored.timezone === next.timezone);
  const { lastRun, mongodash } = state;
  const origin = mongodash === undefined ? {} : { mongodash };
  registered.origin = origin;
  if (dueAt !== undefined && state.takenOver === true) {
    const isOverdue = dueAt <= now;
    // Before the schedule moves on: after a crash in between, the same id asks for the same run.
    if (isOverdue)
      await base.enqueue(taskId, undefined, { id: takenOverId(taskId, dueAt), uniqueKey: IMMEDIATELY });
    await plan(connection, taskId, isOverdue ? next : { ...next, startAt: dueAt }, { lastRun, ...origin });
  } else if (dueAt === undefined || (!isSame && typeof interval !== 'function'))
    await plan(connection, taskId, next, { lastRun, ...origin });
}

/** Registers a task that runs at an interval, on one instance at a time. Waits for `init`. */
export async function cronTask(taskId: TaskId, interval: Interval, task: TaskFunction): Promise<void> {
  if (typeof task !== 'function') throw new OptionError(`${whereOf(taskId)}: task must be a function.`);
  const connection = await whenOpened();
  if (tasks.has(taskId)) throw new OptionError(`${whereOf(taskId)}: this taskId is already used.`);
  const registered: Registered = { interval, task, isServed: false };
  tasks.set(taskId, registered);
  try {
    await planFirst(connection, taskId, registered);
  } catch (error) {
    tasks.delete(taskId);
    throw error;
  }
  if (isAllowed(connection, taskId)) serve(connection, taskId, registered);
  else askAgain(connection);
  follow(connection);
}

/** Lets this instance run cron tasks. */
export function startCronTasks(): void {
  const connection = opening();
  isOn = true;
  follow(connection);
}

/** Stops running cron tasks here. Running ones end. */
export function stopCronTasks(): void {
  const connection = opening();
  isOn = false;
  follow(connection);
}

/** Resolves when a start or stop in progress is over. */
export const whenCronTasksSettled = (): Promise<void> => changing;

/** Runs a task here and now, and resolves when it has ended. */
export async function runCronTask(taskId: TaskId): Promise<void> {
  const connection = opening();
  if (inside.getStore() !== undefined)
    throw new OptionError(
      'runCronTask: cannot be called inside a running task; use scheduleCronTaskImmediately().',
    );
  const registered = tasks.get(taskId);
  if (registered === undefined)
    throw new OptionError(`runCronTask: no task ${JSON.stringify(taskId)} is registered here.`);
  const performed = await performAlone(connection, taskId, registered);
  if (performed.kind === 'taken')
    throw new TidemillError('BUSY', `runCronTask: the task ${JSON.stringify(taskId)} is running.`);
  if (performed.kind === 'threw') throw performed.error;
}

/** Makes a task due at once, on whichever instance runs it. */
export async function scheduleCronTaskImmediately(taskId: TaskId): Promise<void> {
  const { base } = opening();
  if ((await base.schedules.get(taskId)) === undefined)
    throw new OptionError(`scheduleCronTaskImmediately: no task ${JSON.stringify(taskId)} is registered.`);
  await base.enqueue(taskId, undefined, { uniqueKey: IMMEDIATELY, priority: FIRST });
}

/** The same as `scheduleCronTaskImmediately`. */
export const triggerCronTask = (taskId: TaskId): Promise<void> => scheduleCronTaskImmediately(taskId);

export const getRegisteredCronTaskIds = (): string[] => [...tasks.keys()].sort();

function recordOf(schedule: Schedule, asked: ReadonlySet<string>, busy: ReadonlySet<string>): CronTaskRecord {
  const { name, nextRunAt, status } = schedule;
  const { lastRun } = stateOf(schedule);
  const isRunning = status === 'processing' || busy.has(name) || running.has(name);
  const rest = asked.has(name) ? 'scheduled' : (lastRun?.error ?? null) === null ? 'idle' : 'failed';
  return {
    _id: name,
    status: isRunning ? 'running' : rest,
    nextRunAt: nextRunAt ?? new Date(NaN),
    runImmediately: asked.has(name),
    lockedTill: null,
    lastRun:
      lastRun === null
        ? null
        : { ...lastRun, durationMs: lastRun.finishedAt.getTime() - lastRun.startedAt.getTime() },
    isRegistered: tasks.has(name),
  };
}

const orderOf = (value: unknown): number | string =>
  value instanceof Date ? value.getTime() : typeof value === 'string' ? value : Number(value ?? 0);

/** Lists the cron tasks that are registered here. */
export async function getCronTasksList(query: CronTaskQuery = {}): Promise<CronPagedResult<CronTaskRecord>> {
  const { base } = opening();
  const {
    filter,
    limit = 50,
    skip: offset = 0,
    sort: { field, direction } = { field: 'nextRunAt', direction: 1 },
  } = query;
  const pattern = filter === undefined || filter === '' ? undefined : new RegExp(filter, 'iu');
  const ids = [...tasks.keys()].filter((id) => pattern?.test(id) ?? true);
  if (ids.length === 0) return { items: [], total: 0, limit, offset };
  const [schedules, live] = await Promise.all([
    base.schedules.list(),
    base.jobs.find(
      { name: ids, status: ['pending', 'processing'], uniqueKey: IMMEDIATELY },
      { limit: 1_000 },
    ),
  ]);
  const named = (status: string): ReadonlySet<string> =>
    new Set(live.items.filter((job) => job.status === status).map(({ name }) => name));
  const [asked, busy] = [named('pending'), named('processing')];
  const all = schedules
    .filter(({ name, uniqueKey }) => name === uniqueKey && ids.includes(name))
    .map((schedule) => recordOf(schedule, asked, busy))
    .sort((a, b) => {
      const [left, right] = [orderOf(a[field]), orderOf(b[field])];
      return left === right ? 0 : left < right ? -direction : direction;
    });
  return { items: all.slice(offset, offset + limit), total: all.length, limit, offset };
}
