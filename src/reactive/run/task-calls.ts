import { LeaseLostError, OptionError, TaskConditionFailedError } from '../../core/errors.js';
import { checkKeys, checkOneOf } from '../../core/options.js';
import type { Finished, Outcome } from '../../core/records/outcome.js';
import type { TaskRecord } from '../../core/records/task.js';
import { afterTransaction } from '../../engine/record/ending.js';
import type { AttemptControl, Conclusion } from '../../engine/work-runner.js';
import type { Store } from '../../store/port.js';
import type { TaskSettlement, TaskStore } from '../../store/reactive/reactive.js';
import { toInstant, type Duration } from '../../time/duration.js';
import type { CompiledTask } from '../definition.js';
import type { GetDocumentOptions, TaskFacts, ThrottleOptions, TransactionOption } from './context.js';

/** The task runner, as the handlers' calls see it. */
export interface TaskCallsHost {
  readonly store: Store;
  readonly tasks: TaskStore;
  /** Prevents tasks of this name from starting on this instance until then. */
  throttle(task: string, until: Date): void;
  /** Decides what a completion inside a transaction writes. */
  concludeIn(task: TaskRecord, finished: Finished): Conclusion<TaskSettlement>;
  error(problem: unknown, where: string): void;
}

/** What a handler may ask for one task, whether the task runs alone or in a batch. */
export class TaskCalls {
  readonly #task: TaskRecord;
  readonly #attempt: AttemptControl;
  readonly #definition: CompiledTask;
  readonly #host: TaskCallsHost;
  readonly #startedAt: number;
  #completed = false;

  constructor(
    task: TaskRecord,
    attempt: AttemptControl,
    { definition, host }: { readonly definition: CompiledTask; readonly host: TaskCallsHost },
  ) {
    this.#task = task;
    this.#attempt = attempt;
    this.#definition = definition;
    this.#host = host;
    this.#startedAt = host.store.clock.now();
  }

  /** The part of a context that is the same for a task of a batch. */
  facts(): TaskFacts {
    const { name, sourceDocId, attempts, lastObservedValues } = this.#task;
    const attempt = this.#attempt;
    return {
      docId: sourceDocId,
      task: name,
      attempt: attempts,
      watchedValues: (lastObservedValues ?? {}) as Record<string, unknown>,
      get signal() {
        return attempt.signal;
      },
      getDocument: (options) => this.#getDocument(options),
      throttleAll: (until, options = {}) => this.#throttleAll(this.#instant('throttleAll', until), options),
    };
  }

  deferred(call: string, until: Duration | Date): Outcome {
    return { kind: 'deferred', runAt: this.#instant(call, until) };
  }

  /** A transaction that is retried may call this again; each call writes anew. */
  async complete(call: string, options: TransactionOption | undefined): Promise<void> {
    const { store, tasks } = this.#host;
    const transaction = options?.transaction ?? options?.session;
    if (!store.isTransaction(transaction)) {
      const message = `${call}() needs { transaction } or { session }: the handle of a ${store.kind} transaction.`;
      throw new OptionError(message);
    }
    this.#attempt.inTransaction = true;
    const outcome = { kind: 'recorded', result: undefined } as const;
    const finished = { outcome, startedAt: this.#startedAt, finishedAt: store.clock.now() };
    const answer = await tasks.settleIn(this.#host.concludeIn(this.#task, finished).settlement, transaction);
    if (answer !== 'settled')
      throw new LeaseLostError(`This attempt no longer holds the task "${this.#task.name}".`);
    this.#completed = true;
  }

  /** The outcome after the handler: if it completed the task in a transaction, only the store knows it. */
  settled(outcome: Outcome, isGiven = false): Outcome | Promise<Outcome> {
    if (!this.#completed) return outcome;
    const { tasks, store } = this.#host;
    const about = { outcome, result: undefined, call: 'complete()', isGiven };
    return afterTransaction(tasks, this.#attempt, store.clock, about);
  }

  #instant(what: string, until: Duration | Date): Date {
    return toInstant(`task "${this.#task.name}"`, what, until, this.#host.store.clock.now());
  }

  #throttleAll(until: Date, options: ThrottleOptions): void {
    const { name } = this.#task;
    const where = `task "${name}": throttleAll`;
    checkKeys(where, options, ['scope']);
    const scope = checkOneOf(where, 'scope', options.scope ?? 'instance', ['instance', 'cluster'] as const);
    this.#host.throttle(name, until);
    if (scope === 'instance') return;
    this.#host.tasks.pause(name, until).catch((problem: unknown) => this.#host.error(problem, 'throttleAll'));
  }

  async #getDocument({
    session,
    transaction = session,
    ...options
  }: GetDocumentOptions = {}): Promise<never> {
    if (transaction !== undefined) this.#attempt.inTransaction = true;
    const fetched = await this.#host.tasks.fetch({
      plan: this.#definition.plan,
      lease: this.#attempt.lease,
      options: options,
      ...(transaction === undefined ? {} : { transaction }),
    });
    if ('document' in fetched) return fetched.document as never;
    throw new TaskConditionFailedError(
      `The document of task "${this.#task.name}" is gone, no longer matches, or its watched fields changed.`,
    );
  }
}
