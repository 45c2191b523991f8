import { LeaseLostError, OptionError, TaskConditionFailedError } from '../../core/errors.js';
import type { Outcome } from '../../core/records/outcome.js';
import type { TaskRecord } from '../../core/records/task.js';
import { mayRun, thrownOutcome } from '../../engine/record/ending.js';
import type { BatchControl, BatchMember } from '../../engine/work-runner.js';
import type { CompiledTask } from '../definition.js';
import type { BatchTask, GetDocumentOptions, TaskBatchContext } from './context.js';
import { TaskCalls, type TaskCallsHost } from './task-calls.js';

/** One task of a batch: what its handler asked for, and its outcome. */
class TaskMember {
  readonly member: BatchMember<TaskRecord>;
  readonly calls: TaskCalls;
  /** Its document is gone, no longer matches, or has changed. Without another outcome the task is skipped. */
  isOutdated = false;
  #given: string | undefined;

  constructor(member: BatchMember<TaskRecord>, definition: CompiledTask, host: TaskCallsHost) {
    this.member = member;
    this.calls = new TaskCalls(member.work, member.attempt, { definition, host });
  }

  context(): BatchTask {
    const { calls, member } = this;
    const defer = (call: string) => (until: Parameters<BatchTask['defer']>[0]) =>
      this.#give(call, () => calls.deferred(call, until));
    const facts = calls.facts();
    const own: Pick<BatchTask, 'complete' | 'fail' | 'defer' | 'deferCurrent' | 'getDocument'> = {
      complete: () => this.#give('complete', () => ({ kind: 'returned', result: undefined })),
      fail: (error) => this.#give('fail', () => endOfThrown(error, member.attempt.signal)),
      defer: defer('defer'),
      deferCurrent: defer('deferCurrent'),
      getDocument: async (options) => {
        try {
          return await facts.getDocument(options);
        } catch (thrown) {
          if (thrown instanceof TaskConditionFailedError) this.isOutdated = true;
          throw thrown;
        }
      },
    };
    return Object.assign(facts, own);
  }

  /** The first outcome stands. One that comes after a timeout or a lost lease has no effect. */
  #give(call: string, outcome: () => Outcome): void {
    const { name, id } = this.member.work;
    if (this.#given !== undefined)
      throw new OptionError(
        `task "${name}" ${id}: ${call}() comes after ${this.#given}(); a task has one outcome.`,
      );
    const decided = outcome();
    this.#given = call;
    this.end(decided, true);
  }

  end(outcome: Outcome, isGiven = false): void {
    if (!this.member.hasEnded) this.member.end(this.calls.settled(outcome, isGiven));
  }
}

const endOfThrown = (thrown: unknown, signal: AbortSignal): Outcome =>
  thrown instanceof TaskConditionFailedError
    ? { kind: 'skipped', byHandler: true }
    : thrownOutcome(thrown, signal);

export interface TaskBatchHost extends TaskCallsHost {
  /** Wraps each call of a handler. */
  readonly caller: ((run: () => Promise<void>) => unknown) | undefined;
}

/** One call of the handler of a reactive task with a `batch`. */
export class TaskBatchRun {
  readonly #tasks: readonly TaskMember[];
  readonly #control: BatchControl;
  readonly #definition: CompiledTask;
  readonly #host: TaskBatchHost;

  constructor(
    members: readonly BatchMember<TaskRecord>[],
    control: BatchControl,
    { definition, host }: { readonly definition: CompiledTask; readonly host: TaskBatchHost },
  ) {
    this.#tasks = members.map((member) => new TaskMember(member, definition, host));
    this.#control = control;
    this.#definition = definition;
    this.#host = host;
  }

  async perform(): Promise<void> {
    const { caller } = this.#host;
    let end = (task: TaskMember): Outcome =>
      task.isOutdated ? { kind: 'skipped', byHandler: true } : { kind: 'returned', result: undefined };
    try {
      await (caller === undefined ? this.#call() : caller(() => this.#call()));
    } catch (thrown) {
      end = ({ isOutdated, member }) =>
        isOutdated ? { kind: 'skipped', byHandler: true } : thrownOutcome(thrown, member.attempt.signal);
    }
    for (const task of this.#tasks) task.end(end(task));
  }

  async #call(): Promise<void> {
    const running = this.#tasks.filter((task) => mayRun(task.member, (outcome) => task.end(outcome)));
    if (running.length === 0) return;
    const given = running.map((task) => task.context());
    await (this.#definition.handler as (tasks: unknown, context: unknown) => unknown)(
      given,
      this.#context(running),
    );
  }

  #context(running: readonly TaskMember[]): TaskBatchContext {
    const control = this.#control;
    const complete = (call: string): TaskBatchContext['complete'] => {
      return async (options) => {
        // One after the other: a transaction is one connection.
        for (const { member, calls, isOutdated } of running)
          if (!member.hasEnded && !isOutdated) await calls.complete(call, options);
      };
    };
    return {
      get signal() {
        return control.signal;
      },
      getDocuments: (options) => this.#getDocuments(running, options),
      complete: complete('complete'),
      markCompleted: complete('markCompleted'),
    };
  }

  async #getDocuments(
    running: readonly TaskMember[],
    { session, transaction = session, ...options }: GetDocumentOptions = {},
  ): Promise<never[]> {
    if (transaction !== undefined)
      for (const { member } of running) if (!member.hasEnded) member.attempt.inTransaction = true;
    const asked = running.filter(({ member }) => !member.hasEnded);
    const fetched = await this.#host.tasks.fetchAll({
      plan: this.#definition.plan,
      leases: asked.map(({ member }) => member.attempt.lease),
      options: options,
      ...(transaction === undefined ? {} : { transaction }),
    });
    const documents = new Map<TaskMember, unknown>();
    for (const [index, task] of asked.entries()) {
      const answer = fetched[index];
      if (answer === undefined) task.end(thrownOutcome(lost(task), task.member.attempt.signal));
      else if ('document' in answer) documents.set(task, answer.document);
      else task.isOutdated = true;
    }
    return running.map((task) => documents.get(task) as never);
  }
}

const lost = ({ member: { work } }: TaskMember): Error =>
  new LeaseLostError(`This attempt no longer holds the task "${work.name}".`);
