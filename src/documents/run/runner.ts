import { pause, within, type Clock } from '../../core/clock.js';
import { asError, LeaseLostError, OptionError, StoppingError } from '../../core/errors.js';
import type { Logger } from '../../core/logger.js';
import type { Ended } from '../../core/meter.js';
import type { Outcome } from '../../core/records/outcome.js';
import { endOf, thrownOutcome, tracedEnd } from '../../engine/record/ending.js';
import type { DocumentFailure, DocumentJob } from '../../store/documents.js';
import type { Attention } from '../../time/missed.js';
import {
  afterCrash,
  conclude,
  misfitOf,
  parked,
  planOf,
  type Circumstances,
  type Conclusion,
} from './conclude.js';
import type { OutageGrace } from './outage-grace.js';
import { LockedDocument, type Ending, type Lock } from './locked-document.js';
import type { Hooks } from './hooks.js';
import { Intervals } from '../../time/interval.js';
import type { DocumentLocks } from './document-locks.js';
import { LockKeeper } from './lock-keeper.js';
import type { LoopRunner } from './loop.js';
import { isRetried, type Measures } from './measures.js';
import { isSkipped } from './next.js';
import type { ScheduleGate } from './schedule-gate.js';
import type { ScheduleErrorContext, ScheduleSettings } from '../options.js';
import { Recorder } from './recorder.js';
import type { Opened } from './writes.js';

/** The loop of a scheduler, as its runner sees it. */
interface RunnerLoop {
  /** How late a run may be without counting as missed. */
  readonly attention: Attention;
  /** A slot is free, or an outcome is recorded. `isBusy`: other documents run or are being recorded. */
  freed(isBusy: boolean): void;
  /** A document is due again at this time. */
  planned(at: Date): void;
}

export interface DocumentRunnerOptions<Doc> {
  readonly opened: Opened<Doc>;
  readonly clock: Clock;
  readonly settings: ScheduleSettings;
  readonly hooks: Hooks<Doc>;
  readonly log: Logger;
  readonly measures: Measures;
  readonly grace: OutageGrace;
  readonly locks: DocumentLocks<Doc>;
  readonly loop: RunnerLoop;
  /** The limits of the schedule; undefined without a mill that runs. */
  readonly gate: () => ScheduleGate | undefined;
  /** Documents that are locked after this are given back. */
  readonly stop: AbortSignal;
}

/** What a run came to, and what to report and count. */
interface Verdict<Doc> {
  /** Decides what the run means for its document, given the document's current schedule. */
  readonly conclude: (job: DocumentJob<Doc>) => Conclusion | null;
  readonly faults: readonly Fault[];
  /** What the run counts as, once it is recorded. */
  readonly end?: (conclusion: Conclusion | null) => End;
}

interface End {
  readonly as: Ended;
  readonly runMs?: number;
}

interface Fault {
  readonly error: unknown;
  readonly where: ScheduleErrorContext['where'];
}

/** At this many documents that run or wait to be recorded, nothing new is locked. */
const MOST_UNRECORDED = 2_000;
/** How long handlers get to react to their signal at the end of a stop. */
const LAST_GRACE_MS = 500;
/** How long a stop waits for the store to answer. */
const RECORD_LIMIT_MS = 10_000;

/** Returns the whole document, put together from its fields if the store did not supply it. */
function documentOf<Doc>(job: DocumentJob<Doc>): Doc {
  if (job.document !== undefined) return job.document;
  const { data, document: _none, ...fields } = job;
  return { ...fields, ...data } as Doc;
}

/** Runs locked documents. Duties: call the handler, keep the lock, record the outcome, and end the runs at a stop. */
export class DocumentRunner<Doc> implements LoopRunner<Doc> {
  readonly #options: DocumentRunnerOptions<Doc>;
  readonly #intervals = new Intervals();
  readonly #keeper: LockKeeper<Doc>;
  readonly #recorder: Recorder<Doc>;
  /** Documents whose handlers run. */
  readonly #running = new Set<LockedDocument<Doc>>();
  /** Those, and documents whose outcome is being recorded. */
  readonly #open = new Set<LockedDocument<Doc>>();
  #idleWaiters: (() => void)[] = [];

  constructor(options: DocumentRunnerOptions<Doc>) {
    this.#options = options;
    const { opened, clock, settings, grace, locks } = options;
    this.#keeper = new LockKeeper({
      opened,
      clock,
      lockMs: settings.lockMs,
      grace,
      locks,
      error: (error) => void options.hooks.error(error, { where: 'renew' }),
    });
    this.#recorder = new Recorder({
      opened,
      clock,
      keeper: this.#keeper,
      error: (error, locked) => void this.#report({ error, where: 'record' }, locked),
    });
  }

  get isBusy(): boolean {
    return this.#open.size > 0;
  }

  /** How many documents may start. With a concurrency of 1, each is recorded before the next is locked. */
  get room(): number {
    const { concurrency } = this.#options.settings;
    if (concurrency === 1) return this.isBusy ? 0 : 1;
    return this.#open.size >= MOST_UNRECORDED ? 0 : concurrency - this.#running.size;
  }

  /** Runs a document that was just locked, or gives it back after the stop. */
  start(job: DocumentJob<Doc>, lock: Lock): void {
    const { clock, stop } = this.#options;
    if (stop.aborted) {
      this.giveBack(job, lock);
      return;
    }
    const running = this.#run(new LockedDocument(job, lock));
    clock.track?.(running);
  }

  giveBack(job: DocumentJob<Doc>, lock: Lock): void {
    this.#giveBack(new LockedDocument(job, lock));
  }

  /** How many documents count against limits: from their lock until their end is recorded. */
  get held(): number {
    return this.#open.size;
  }

  /** The permits of what runs are lost: their handlers' signals abort. */
  leaseLost(reason: string): void {
    const error = new LeaseLostError(
      `The lease of this instance was lost, and with it its share of the limits: ${reason}.`,
    );
    for (const locked of this.#running) locked.abort(error);
  }

  /**
   * Waits for handlers until `hurry` aborts. Then aborts their signals, and gives back the documents of those that
   * still run after 500 ms. Resolves when everything is recorded, or when the store has not answered within 10 s.
   */
  async end(hurry: AbortSignal): Promise<void> {
    await this.#idle(Infinity, hurry);
    for (const locked of this.#running)
      locked.abort(new StoppingError('The scheduler is stopping and no longer waits for its handlers.'));
    await this.#idle(LAST_GRACE_MS);
    const stuck = [...this.#running];
    for (const locked of stuck) {
      locked.isAbandoned = true;
      this.#ended(locked);
      this.#giveBack(locked);
    }
    const unrecorded = await this.#recorder.drain(RECORD_LIMIT_MS);
    await within(this.#options.clock, RECORD_LIMIT_MS, this.#keeper.settled());
    this.#mourn(stuck, unrecorded);
  }

  #mourn(stuck: readonly LockedDocument<Doc>[], unrecorded: number): void {
    const { log } = this.#options;
    const documents = stuck.map(({ id }) => id);
    if (documents.length > 0)
      log.warn(
        { documents },
        `stopped before these documents finished; they are due again: ${documents.join(', ')}`,
      );
    if (unrecorded > 0) {
      const count = String(unrecorded);
      log.error(
        { count: unrecorded },
        `the outcomes of ${count} documents could not be recorded; they run again when their locks end`,
      );
    }
  }

  /** Resolves when no handler runs, after the limit, or when the signal aborts. */
  async #idle(limitMs: number, hurry?: AbortSignal): Promise<void> {
    if (this.#running.size === 0) return;
    const idle = new AbortController();
    this.#idleWaiters.push(() => idle.abort());
    const signal = hurry === undefined ? idle.signal : AbortSignal.any([hurry, idle.signal]);
    await pause(this.#options.clock, limitMs, signal);
  }

  #about(): Circumstances {
    const { settings, clock, opened } = this.#options;
    return { settings, intervals: this.#intervals, now: new Date(clock.now()), marks: opened.marks };
  }

  async #run(locked: LockedDocument<Doc>): Promise<void> {
    const { hooks, settings, loop } = this.#options;
    hooks.busy();
    this.#running.add(locked);
    this.#open.add(locked);
    const verdict = await this.#perform(locked).catch((error: unknown): Verdict<Doc> => {
      const outcome = { kind: 'threw', error: asError(error) } as const;
      return {
        conclude: (job) => conclude(job, outcome, this.#about()),
        faults: [{ error, where: 'onDocument' }],
      };
    });
    if (locked.isAbandoned) return;
    this.#ended(locked);
    if (settings.concurrency > 1) loop.freed(this.isBusy);
    const recording = this.#record(locked, verdict);
    for (const fault of verdict.faults) await this.#report(fault, locked);
    this.#close(locked, await recording);
    loop.freed(this.isBusy);
  }

  #close(locked: LockedDocument<Doc>, as?: Ended): void {
    this.#open.delete(locked);
    const isFailed = locked.wasStarted && (as === 'failed' || as === 'retried');
    const how = as === 'completed' ? 'succeeded' : isFailed ? 'failed' : 'other';
    this.#options.gate()?.ended(locked.id, how, locked.wasStarted);
  }

  #ended(locked: LockedDocument<Doc>): void {
    this.#keeper.delete(locked);
    this.#running.delete(locked);
    if (this.#running.size === 0) for (const waiter of this.#idleWaiters.splice(0)) waiter();
  }

  #giveBack(locked: LockedDocument<Doc>): void {
    const { ending } = conclude(locked.job, { kind: 'released' }, this.#about()) as Conclusion;
    this.#open.add(locked);
    void this.#recorder
      .record(locked, () => ending)
      .then((recorded) => {
        this.#close(locked);
        if (recorded) this.#count({ as: 'released' });
      });
  }

  /**
   * Without a retry policy nothing is written for a failed run, but it is counted. Returns what it counts as; undefined
   * if the lock was lost.
   */
  async #record(locked: LockedDocument<Doc>, { conclude, end }: Verdict<Doc>): Promise<Ended | undefined> {
    const { name, meter } = this.#options.measures;
    let conclusion = conclude(locked.job);
    const decide = (): Ending => {
      conclusion = conclude(locked.job) ?? conclusion;
      return (conclusion as Conclusion).ending;
    };
    const recorded = conclusion === null || (await this.#recorder.record(locked, decide));
    const { next, dropped, problem } = conclusion ?? {};
    if (problem !== undefined) await this.#report({ error: problem, where: 'interval' }, locked);
    if (!recorded) {
      meter.lost('document', name);
      return undefined;
    }
    const ended = end?.(conclusion);
    this.#count(ended);
    if (next !== undefined) this.#options.loop.planned(next);
    if (dropped === true)
      this.#options.log.warn(
        { document: locked.id },
        `${locked.id} missed more runs than a schedule catches up on; the oldest ones are dropped`,
      );
    return ended?.as;
  }

  #report({ error, where }: Fault, locked?: LockedDocument<Doc>): Promise<void> {
    const about = locked === undefined ? {} : { job: locked.job, document: documentOf(locked.job) };
    return this.#options.hooks.error(error, { where, ...about });
  }

  async #perform(locked: LockedDocument<Doc>): Promise<Verdict<Doc>> {
    const misfit = misfitOf(locked.job);
    if (misfit !== undefined)
      return {
        conclude: () => ({ ending: parked(misfit, this.#about().now).ending }),
        faults: [{ error: misfit, where: 'sleepUntil' }],
      };
    const crash = afterCrash(locked.job, this.#about());
    if (crash === null) return this.#attempt(locked);
    void this.#report({ error: crash.error, where: 'crash' }, locked);
    const { name, meter } = this.#options.measures;
    meter.reclaimed('document', name);
    if (crash.conclusion !== undefined) {
      const again = (job: DocumentJob<Doc>): Conclusion | null =>
        afterCrash(job, this.#about())?.conclusion ?? null;
      return { conclude: again, faults: [], end: () => ({ as: 'failed' }) };
    }
    if (!(await this.#countCrash(locked, crash.failure))) return { conclude: () => null, faults: [] };
    this.#count({ as: 'retried' });
    return this.#attempt(locked);
  }

  /**
   * Stores the crash before the document runs again, because the run may kill this process, too. Returns false if the
   * document was lost meanwhile and must not run.
   */
  async #countCrash(locked: LockedDocument<Doc>, failure: DocumentFailure): Promise<boolean> {
    locked.job = { ...locked.job, failure };
    const changes = { failure: { ...failure, lockedUntil: locked.lockedUntil } };
    return (await this.#recorder.record(locked, () => ({ changes }))) && !locked.isOver(this.#options.clock);
  }

  async #attempt(locked: LockedDocument<Doc>): Promise<Verdict<Doc>> {
    const { outcome, runMs } = this.#isSkipped(locked.job)
      ? { outcome: { kind: 'skipped' } as const, runMs: undefined }
      : await this.#timed(locked);
    return {
      conclude: (job) => conclude(job, outcome, this.#about()),
      faults: outcome.kind === 'threw' ? [{ error: outcome.error, where: 'onDocument' }] : [],
      end: (conclusion) => ({
        as: endOf(outcome, isRetried(conclusion)),
        ...(runMs === undefined ? {} : { runMs }),
      }),
    };
  }

  async #timed(locked: LockedDocument<Doc>): Promise<{ readonly outcome: Outcome; readonly runMs: number }> {
    const { clock, measures } = this.#options;
    const { name, meter, tracer } = measures;
    const beganAt = clock.now();
    meter.began('document', name, locked.job.sleepUntil?.getTime() ?? beganAt, beganAt);
    const call = (): Promise<Outcome> => this.#call(locked);
    const about = {
      kind: 'document',
      name,
      id: locked.id,
      attempt: (locked.job.failure?.count ?? 0) + 1,
    } as const;
    const outcome = await (tracer()?.run(about, call, tracedEnd) ?? call());
    return { outcome, runMs: clock.now() - beganAt };
  }

  #count(end: End | undefined): void {
    if (end === undefined) return;
    const { clock, measures } = this.#options;
    measures.meter.ended('document', measures.name, end.as, clock.now(), end.runMs);
  }

  async #call(locked: LockedDocument<Doc>): Promise<Outcome> {
    const { job, signal } = locked;
    // The process may have been paused since the lock, for longer than its permits hold.
    if (this.#options.gate()?.mayRun === false) return { kind: 'released' };
    locked.wasStarted = true;
    this.#keeper.add(locked);
    try {
      return {
        kind: 'returned',
        result: await this.#options.hooks.onDocument(documentOf(job), { job, signal }),
      };
    } catch (thrown) {
      return thrownOutcome(thrown, signal);
    }
  }

  /**
   * A retry was started in time once, so it is never too late. A document whose schedule cannot be parsed runs, and is
   * parked afterwards.
   */
  #isSkipped(job: DocumentJob<Doc>): boolean {
    if (this.#options.settings.missed !== 'skip' || job.failure?.ended === false) return false;
    const about = this.#about();
    try {
      const plan = planOf(job, about);
      return plan !== null && isSkipped(plan, about.now, this.#options.loop.attention);
    } catch (problem) {
      if (problem instanceof OptionError) return false;
      throw problem;
    }
  }
}
