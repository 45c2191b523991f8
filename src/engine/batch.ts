import { within, type Clock } from '../core/clock.js';
import { AttemptTimeoutError } from '../core/errors.js';
import type { Finished, Outcome } from '../core/records/outcome.js';
import type { Work } from '../core/records/work.js';
import { runAttempt, type Attempt } from './attempt.js';
import type { BatchControl, BatchMember, WorkRunner } from './work-runner.js';

/** One member of a batch that runs. Its outcome may come long before the handler ends. */
export class Member<W extends Work> implements BatchMember<W> {
  readonly attempt: Attempt<W>;
  readonly outcome: Promise<Outcome>;
  #hasEnded = false;
  #resolve!: (outcome: Outcome | Promise<Outcome>) => void;

  constructor(attempt: Attempt<W>) {
    this.attempt = attempt;
    this.outcome = new Promise((resolve) => (this.#resolve = resolve));
  }

  get work(): W {
    return this.attempt.work;
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  end(outcome: Outcome | Promise<Outcome>): void {
    this.#hasEnded = true;
    this.#resolve(outcome);
  }
}

export interface BatchOptions<W extends Work> {
  readonly clock: Clock;
  readonly runner: Pick<WorkRunner<W, unknown>, 'performBatch' | 'timeoutMs'>;
  /** Called if the handler runs past the timeouts of all members. `handler` resolves when it ends at last. */
  readonly abandoned: (attempt: Attempt<W>, handler: Promise<unknown>) => void;
}

/**
 * One call of a handler for several pieces of work. Each has an attempt of its own, with its lease, signal, timeout and
 * outcome. The slot belongs to the call: it is free when the handler has ended, or has run past every timeout.
 */
export class Batch<W extends Work> implements BatchControl {
  readonly #members: readonly Member<W>[];
  readonly #options: BatchOptions<W>;
  /** Created on first use, like those of attempts. */
  #controller: AbortController | undefined;
  #reason: Error | undefined;

  constructor(attempts: readonly Attempt<W>[], options: BatchOptions<W>) {
    this.#options = options;
    this.#members = attempts.map((attempt) => new Member(attempt));
    for (const member of this.#members) member.attempt.aborted = (reason) => this.#aborted(reason);
  }

  get signal(): AbortSignal {
    this.#controller ??= new AbortController();
    if (this.#reason !== undefined) this.#controller.abort(this.#reason);
    return this.#controller.signal;
  }

  /** Also reaches a handler whose members all have their outcomes. */
  abort(reason: Error): void {
    this.#reason ??= reason;
    this.#controller?.abort(this.#reason);
  }

  #aborted(reason: Error): void {
    const isOver = ({ hasEnded, attempt }: Member<W>): boolean => hasEnded || attempt.isAborted;
    if (this.#members.every(isOver)) this.abort(reason);
  }

  /** `each` runs one attempt from its start to its recording. Resolves when the slot is free. */
  async run(each: (attempt: Attempt<W>, run: () => Promise<Finished>) => Promise<void>): Promise<void> {
    const { clock, runner } = this.#options;
    const members = this.#members;
    // Before the handler: it may give outcomes at once.
    const attempts = members.map((member) => each(member.attempt, () => this.#attempt(member)));
    const handler = runner.performBatch(members, this);
    const limits = members.map(({ work }) => runner.timeoutMs(work));
    const limitMs = Math.max(...limits.map((limit) => limit ?? Infinity));
    if (limitMs === Infinity) await handler;
    else if (!(await within(clock, limitMs, handler))) this.#abandon(handler, limitMs);
    await Promise.all(attempts);
  }

  #abandon(handler: Promise<void>, limitMs: number): void {
    const [first] = this.#members as readonly [Member<W>];
    this.abort(
      new AttemptTimeoutError(`A batch of ${first.work.name} ran past its timeout of ${String(limitMs)} ms.`),
    );
    this.#options.abandoned(first.attempt, handler);
  }

  #attempt(member: Member<W>): Promise<Finished> {
    const { clock, runner } = this.#options;
    return runAttempt(member.attempt, {
      clock,
      runner: { perform: () => member.outcome, timeoutMs: (work) => runner.timeoutMs(work) },
      // The call as a whole is abandoned, once.
      abandoned: () => member.end({ kind: 'released' }),
    });
  }
}
