import type { Timer } from '../../core/clock.js';
import type { Emitter } from '../../core/emitter.js';
import { TaskConditionFailedError } from '../../core/errors.js';
import type { Logger } from '../../core/logger.js';
import type { Meter } from '../../core/meter.js';
import type { Finished, Outcome } from '../../core/records/outcome.js';
import { toTask, type TaskRecord } from '../../core/records/task.js';
import { endOf, thrownOutcome } from '../../engine/record/ending.js';
import type { FailureLog } from '../../engine/record/failure-log.js';
import type { LaneOptions } from '../../engine/claim/lanes.js';
import type {
  About,
  AttemptControl,
  BatchControl,
  BatchMember,
  Conclusion,
  WorkRunner,
} from '../../engine/work-runner.js';
import type { InForce, Store, TaskAdvert } from '../../store/port.js';
import type { TaskSettlement, TaskStore } from '../../store/reactive/reactive.js';
import type { Duration } from '../../time/duration.js';
import { retryRule, TASK_RETRY, type RetryPolicy, type RetryRule } from '../../time/retry.js';
import { concludeTask } from './conclude.js';
import { TaskBatchRun, type TaskBatchHost } from './batch-run.js';
import { LOOP_RUNS, LoopDetector } from './loop-detector.js';
import type { TaskContext, TaskHandler, TransactionOption } from './context.js';
import { TaskCalls } from './task-calls.js';
import type { CompiledTask } from '../definition.js';
import type { TaskEvents } from '../events.js';

export interface TaskRunnerOptions {
  readonly store: Store;
  readonly tasks: TaskStore;
  readonly definitions: ReadonlyMap<string, CompiledTask>;
  /** The definitions as published. */
  readonly adverts: () => readonly TaskAdvert[];
  readonly instanceId: string;
  readonly concurrency: number;
  /** Selects the tasks that this instance runs; called repeatedly. */
  readonly filter: ((task: { readonly task: string }) => boolean) | undefined;
  /** Wraps each run. */
  readonly caller: ((run: () => Promise<void>) => unknown) | undefined;
  readonly events: Emitter<TaskEvents>;
  readonly log: Logger;
  readonly meter: Meter;
  readonly failures: FailureLog;
  readonly error: (error: unknown, where: string) => void;
  /** Called when the tasks that this instance runs have changed, or one of them may be due again soon. */
  readonly changed: () => void;
}

/** Runs reactive tasks for the engine, and decides what their outcomes mean. */
export class TaskRunner implements WorkRunner<TaskRecord, TaskSettlement>, TaskBatchHost {
  readonly #options: TaskRunnerOptions;
  /** Names that are throttled on this instance, and until when. */
  readonly #throttled = new Map<string, { readonly until: Date; readonly timer: Timer }>();
  /** Names whose handlers have called `complete`. */
  readonly #completing = new Set<string>();
  #inForce: InForce = new Map();
  readonly #loops = new LoopDetector();

  constructor(options: TaskRunnerOptions) {
    this.#options = options;
  }

  workers(): ReadonlyMap<string, LaneOptions> {
    const { definitions, concurrency } = this.#options;
    const run = [...definitions].filter(
      ([task]) => !this.#throttled.has(task) && this.#isCurrent(task) && this.#wanted(task),
    );
    return new Map(
      run.map(([task, definition]) => [
        task,
        {
          concurrency: definition.concurrency ?? concurrency,
          ahead: definition.retry.maxAttempts > 1,
          ...(definition.batch === undefined ? {} : { batch: definition.batch }),
        },
      ]),
    );
  }

  /**
   * Documents are planned by one definition at a time. An instance with another filter or projection, either older or
   * too new to be in force yet, would skip tasks that it should run. One with an older handler would undo the work of a
   * newer one. Both leave the task to other instances.
   */
  #isCurrent(task: string): boolean {
    const inForce = this.#inForce.get(task);
    const own = this.#options.adverts().find((advert) => advert.task === task);
    if (inForce === undefined || own === undefined) return true;
    return inForce.trigger === own.trigger && inForce.version <= own.version;
  }

  /**
   * Takes over from a cluster snapshot which definitions are in force, by task. Returns true if that changes which
   * tasks this instance runs.
   */
  observe(inForce: InForce = new Map()): boolean {
    const tasks = [...this.#options.definitions.keys()];
    const before = tasks.map((task) => this.#isCurrent(task));
    this.#inForce = inForce;
    const changed = tasks.filter((task, index) => this.#isCurrent(task) !== before[index]);
    for (const task of changed) this.#tell(task);
    return changed.length > 0;
  }

  /**
   * Logs the change. It is temporary during a deployment, but two services that share a name by mistake need the
   * warning.
   */
  #tell(task: string): void {
    const { log } = this.#options;
    if (this.#isCurrent(task))
      log.info({ task }, `${task}: the definition of this instance is in force again`);
    else {
      log.warn(
        { task },
        `${task}: another instance's definition is in force, with a newer handlerVersion or another collection, filter or ` +
          'projection. Until that changes, this instance runs none of its tasks. If no deployment is under way, rename one of the two tasks.',
      );
    }
  }

  #wanted(task: string): boolean {
    const { filter, error } = this.#options;
    if (filter === undefined) return true;
    try {
      return filter({ task });
    } catch (problem) {
      error(problem, 'reactive.filter');
      return false;
    }
  }

  mayComplete(task: TaskRecord): boolean {
    const definition = this.#options.definitions.get(task.name);
    return this.#completing.has(task.name) || definition?.transactional === true;
  }

  maxAttempts(task: TaskRecord): number {
    return this.#options.definitions.get(task.name)?.retry.maxAttempts ?? Infinity;
  }

  /**
   * Decided by the policies of the instance that ran the task, since that instance decided whether to mark the start.
   */
  isLastAttempt(task: TaskRecord, policies: Readonly<Record<string, unknown>>): boolean {
    const key = `task:${task.name}`;
    return Object.hasOwn(policies, key) && this.attempt(task) >= foreignRule(policies[key]).maxAttempts;
  }

  attempt(task: TaskRecord): number {
    return task.attempts;
  }

  timeoutMs(task: TaskRecord): number | undefined {
    return this.#options.definitions.get(task.name)?.timeoutMs;
  }

  async perform(task: TaskRecord, attempt: AttemptControl): Promise<Outcome> {
    const definition = this.#options.definitions.get(task.name);
    if (definition === undefined) return { kind: 'released' };
    // The claim found that the document is gone or no longer matches, so there is nothing to run.
    if (task.matches === false) return { kind: 'skipped' };
    this.#began(task);
    return new TaskRun(task, attempt, definition, this).perform();
  }

  async performBatch(members: readonly BatchMember<TaskRecord>[], control: BatchControl): Promise<void> {
    const [{ work }] = members as readonly [BatchMember<TaskRecord>];
    const definition = this.#options.definitions.get(work.name);
    const runs = members.filter((member) => {
      const { matches } = member.work;
      if (definition === undefined) member.end({ kind: 'released' });
      else if (matches === false) member.end({ kind: 'skipped' });
      else this.#began(member.work);
      return !member.hasEnded;
    });
    if (definition === undefined || runs.length === 0) return;
    await new TaskBatchRun(runs, control, { definition, host: this }).perform();
  }

  #began(task: TaskRecord): void {
    const { events, instanceId, store, meter } = this.#options;
    this.#countRun(task);
    meter.began('task', task.name, task.scheduledAt.getTime(), store.clock.now());
    if (events.has('task:start')) events.emit('task:start', { task: toTask(task), instanceId });
  }

  get store(): Store {
    return this.#options.store;
  }

  get tasks(): TaskStore {
    return this.#options.tasks;
  }

  get caller(): TaskRunnerOptions['caller'] {
    return this.#options.caller;
  }

  error(problem: unknown, where: string): void {
    this.#options.error(problem, where);
  }

  concludeIn(task: TaskRecord, finished: Finished): Conclusion<TaskSettlement> {
    this.#completing.add(task.name);
    return this.conclude(task, finished);
  }

  /** Prevents tasks of this name from starting here until then. Of several calls, the latest time counts. */
  throttle(task: string, until: Date): void {
    const { store, changed } = this.#options;
    const before = this.#throttled.get(task);
    if (before !== undefined && before.until >= until) return;
    before?.timer.cancel();
    const timer = store.clock.timer(until.getTime() - store.clock.now(), () => {
      this.#throttled.delete(task);
      changed();
    });
    this.#throttled.set(task, { until, timer });
    changed();
  }

  stop(): void {
    for (const { timer } of this.#throttled.values()) timer.cancel();
    this.#throttled.clear();
  }

  conclude(task: TaskRecord, finished: Finished, about: About = {}): Conclusion<TaskSettlement> {
    const { definitions, instanceId } = this.#options;
    const definition = definitions.get(task.name);
    const conclusion = concludeTask(task, finished, {
      instanceId,
      retry: definition?.retry ?? foreignRule(about.policies?.[`task:${task.name}`]),
      historyLimit: definition?.historyLimit ?? 5,
      resetRetries: definition?.plan.resetRetriesOnDataChange ?? true,
    });
    if ((about.refusals ?? 0) < 2) return conclusion;
    // The database has refused the settlement twice: leave out the history entry and record the state only.
    const { entry, ...settlement } = conclusion.settlement;
    return { ...conclusion, settlement };
  }

  recorded(
    record: TaskRecord,
    finished: Finished,
    { settlement, retryAt }: Conclusion<TaskSettlement>,
  ): void {
    const { events, instanceId, changed, meter, failures } = this.#options;
    const { outcome, finishedAt, startedAt = finishedAt } = finished;
    const task = (): ReturnType<typeof toTask> =>
      toTask({ ...record, status: settlement.status, lockedAt: null });
    const durationMs = finishedAt - startedAt;
    const runMs = finished.startedAt === undefined ? undefined : durationMs;
    meter.ended('task', record.name, endOf(outcome, retryAt !== undefined), finishedAt, runMs);
    // The task may be due again soon, because it is retried or deferred, or because its document changed during a slow
    // run, and the poll has slowed down meanwhile.
    if (retryAt !== undefined || outcome.kind === 'deferred' || durationMs >= SLOW_MS) changed();
    if (outcome.kind === 'returned' || outcome.kind === 'recorded') {
      if (events.has('task:complete')) events.emit('task:complete', { task: task(), durationMs, instanceId });
    } else if (outcome.kind === 'skipped') {
      if (events.has('task:skip')) events.emit('task:skip', { task: task(), instanceId });
    } else if ('error' in outcome) {
      const { error } = outcome;
      const willRetry = retryAt !== undefined;
      failures.failed({
        kind: 'task',
        name: record.name,
        id: record.id,
        attempt: record.attempts,
        error,
        retryAt,
        advice: () =>
          `It runs again when its document changes, or by mill.tasks.retryMany({ id: ${JSON.stringify(record.id)} })`,
      });
      if (events.has('task:fail'))
        events.emit('task:fail', {
          task: task(),
          error,
          attempt: record.attempts,
          willRetry,
          durationMs,
          instanceId,
        });
      if (retryAt !== undefined && events.has('task:retry'))
        events.emit('task:retry', { task: task(), runAt: retryAt, instanceId });
    } else if (outcome.kind === 'deferred' && events.has('task:defer')) {
      events.emit('task:defer', { task: task(), runAt: outcome.runAt, instanceId });
    }
  }

  /** Warns about a handler that writes what it watches: once a minute, with the document's id. */
  #countRun(task: TaskRecord): void {
    const { store, log } = this.#options;
    const fields = this.#loops.looping(task, store.clock.now());
    if (fields === undefined) return;
    const text =
      `reactive task "${task.name}" ran ${String(LOOP_RUNS)} times within a minute for one document; ` +
      `does its handler write what it watches (${fields.join(', ')})?`;
    log.warn({ task: task.name, docId: task.sourceDocId }, text);
  }
}

/** A shorter run ends while the claim loop still polls frequently after its claim. */
const SLOW_MS = 100;

/** The retry rule of another instance, from the policy it stored; the default rule if that cannot be used. */
function foreignRule(policy: unknown): RetryRule {
  const usable = typeof policy === 'object' && policy !== null ? (policy as RetryPolicy) : undefined;
  try {
    return retryRule('stored retryPolicy', usable, TASK_RETRY);
  } catch {
    return retryRule('default', undefined, TASK_RETRY);
  }
}

/** One call of a handler, and what the handler asked for during it. */
class TaskRun {
  readonly #attempt: AttemptControl;
  readonly #definition: CompiledTask;
  readonly #calls: TaskCalls;
  readonly #caller: TaskRunnerOptions['caller'];
  #deferred: Outcome | undefined;

  constructor(task: TaskRecord, attempt: AttemptControl, definition: CompiledTask, host: TaskBatchHost) {
    this.#attempt = attempt;
    this.#definition = definition;
    this.#calls = new TaskCalls(task, attempt, { definition, host });
    this.#caller = host.caller;
  }

  async perform(): Promise<Outcome> {
    let outcome: Outcome;
    try {
      const call = async (): Promise<void> => {
        this.#attempt.checkLease();
        await (this.#definition.handler as TaskHandler)(this.#context());
      };
      await (this.#caller === undefined ? call() : this.#caller(call));
      outcome = this.#deferred ?? { kind: 'returned', result: undefined };
    } catch (thrown) {
      outcome =
        thrown instanceof TaskConditionFailedError
          ? { kind: 'skipped', byHandler: true }
          : thrownOutcome(thrown, this.#attempt.signal);
    }
    return this.#calls.settled(outcome);
  }

  #context(): TaskContext {
    const complete = (call: string) => (options?: TransactionOption) => this.#calls.complete(call, options);
    const defer = (call: string) => (until: Duration | Date) => {
      this.#deferred = this.#calls.deferred(call, until);
    };
    return Object.assign(this.#calls.facts(), {
      complete: complete('complete'),
      markCompleted: complete('markCompleted'),
      defer: defer('defer'),
      deferCurrent: defer('deferCurrent'),
    });
  }
}
