import { CancelledError, OptionError } from '../../core/errors.js';
import type { JobRecord } from '../../core/records/job.js';
import type { Outcome } from '../../core/records/outcome.js';
import { mayRun, thrownOutcome } from '../../engine/record/ending.js';
import type { BatchControl, BatchMember } from '../../engine/work-runner.js';
import type { AnyHandler, BatchContext, BatchJob } from '../context.js';
import { JobCalls, type JobCallsHost } from './job-calls.js';

/** One job of a batch: what its handler asked for, and its outcome. */
class JobMember {
  readonly member: BatchMember<JobRecord>;
  readonly calls: JobCalls;
  /** The call that gave the outcome. */
  #given: string | undefined;

  constructor(member: BatchMember<JobRecord>, host: JobCallsHost) {
    this.member = member;
    this.calls = new JobCalls(member.work, member.attempt, host);
  }

  context(data: unknown): BatchJob {
    const { calls } = this;
    const own: Pick<BatchJob, 'complete' | 'fail' | 'defer'> = {
      complete: (result) => this.#give('complete', () => calls.returned(result)),
      fail: (error) => this.#give('fail', () => thrownOutcome(error, this.member.attempt.signal)),
      defer: (until) => this.#give('defer', () => calls.deferred(until)),
    };
    return Object.assign(calls.facts(data), own);
  }

  /** The first outcome stands. One that comes after a timeout or a lost lease has no effect. */
  #give(call: string, outcome: () => Outcome): void {
    const { work } = this.member;
    if (this.#given !== undefined)
      throw new OptionError(
        `job "${work.name}" ${work.id}: ${call}() comes after ${this.#given}(); a job has one outcome.`,
      );
    const decided = outcome();
    this.#given = call;
    this.end(decided, true);
  }

  end(outcome: Outcome, isGiven = false): void {
    if (!this.member.hasEnded) this.member.end(this.calls.settled(outcome, isGiven));
  }
}

/** One call of a batch's handler. */
export class BatchRun {
  readonly #jobs: readonly JobMember[];
  readonly #control: BatchControl;
  readonly #isByKey: boolean;

  constructor(
    members: readonly BatchMember<JobRecord>[],
    { control, isByKey }: { readonly control: BatchControl; readonly isByKey: boolean },
    host: JobCallsHost,
  ) {
    this.#jobs = members.map((member) => new JobMember(member, host));
    this.#control = control;
    this.#isByKey = isByKey;
  }

  /** Jobs whose payload does not fit the schema, or whose lease is lost, fail alone: the handler does not see them. */
  async perform(handler: AnyHandler, validate: (data: unknown) => Promise<unknown>): Promise<void> {
    const read = await Promise.all(this.#jobs.map((job) => this.#validated(job, validate)));
    const given = this.#jobs.flatMap((job, index) =>
      mayRun(job.member, (outcome) => job.end(outcome)) ? [job.context(read[index])] : [],
    );
    if (given.length === 0) return;
    let end: (job: JobMember) => Outcome = returned;
    try {
      await (handler as (jobs: unknown, context: unknown) => unknown)(given, this.#context());
    } catch (thrown) {
      end = ({ member }) => thrownOutcome(thrown, member.attempt.signal);
    }
    for (const job of this.#jobs) if (!job.member.hasEnded) job.end(end(job));
  }

  async #validated(job: JobMember, validate: (data: unknown) => Promise<unknown>): Promise<unknown> {
    try {
      return await validate(job.member.work.data);
    } catch (thrown) {
      job.end(thrownOutcome(thrown, job.member.attempt.signal));
      return undefined;
    }
  }

  #context(): BatchContext {
    const control = this.#control;
    const [first] = this.#jobs;
    return {
      ...(this.#isByKey ? { limitKey: first?.member.work.limitKey ?? '' } : {}),
      get signal() {
        return control.signal;
      },
      complete: async ({ transaction, result }) => {
        // One after the other: a transaction is one connection.
        for (const { member, calls } of this.#jobs)
          if (!member.hasEnded) await calls.complete(transaction, result);
      },
    };
  }
}

/** A handler cannot throw for a single job, so one that was cancelled, and got no outcome, did stop. */
function returned({ member: { attempt } }: JobMember): Outcome {
  const isCancelled = attempt.isAborted && attempt.signal.reason instanceof CancelledError;
  return isCancelled ? { kind: 'cancelled' } : { kind: 'returned', result: undefined };
}
