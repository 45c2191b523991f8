import { Backoff } from '../../core/backoff.js';
import { pause, type Clock } from '../../core/clock.js';
import { OptionError, StoreError } from '../../core/errors.js';
import type { Wake } from '../../engine/claim/wake.js';
import { idText } from '../../core/text/paths.js';
import type { DocumentJob, Misfit } from '../../store/documents.js';
import type { Attention } from '../../time/missed.js';
import type { PollMs, ScheduleSettings } from '../options.js';
import { misfitError } from './conclude.js';
import type { DocumentLocks, LockOptions, LockReceiver } from './document-locks.js';
import type { Hooks } from './hooks.js';
import type { Lock } from './locked-document.js';
import type { OutageGrace } from './outage-grace.js';
import type { LockGrant, ScheduleGate } from './schedule-gate.js';
import { asked, type Opened } from './writes.js';

/** What the loop needs of the runner: how much it has room for, and to hand it what was locked. */
export interface LoopRunner<Doc> extends LockReceiver<Doc> {
  /** Gives a document back that was locked but may not start. */
  giveBack(job: DocumentJob<Doc>, lock: Lock): void;
  /** How many documents may start now. */
  readonly room: number;
  /** True while a document runs or its outcome is being recorded. */
  readonly isBusy: boolean;
}

export interface DueLoopOptions<Doc> {
  readonly opened: Opened<Doc>;
  readonly clock: Clock;
  readonly wake: Wake;
  readonly grace: OutageGrace;
  readonly settings: Pick<ScheduleSettings, 'nextMs' | 'idleMs'>;
  readonly pollMs: PollMs;
  readonly locks: DocumentLocks<Doc>;
  readonly hooks: Hooks<Doc>;
  readonly isPaused: () => Promise<boolean>;
  /** What the mill's limits let through; undefined without a mill that runs. */
  readonly gate: () => ScheduleGate | undefined;
  /** True while a wake-up comes for every change, so that there is no need to poll. */
  readonly isDirect: () => boolean;
}

/** How many misfits are reported, and remembered as reported. */
const MOST_KNOWN = 1_000;

/**
 * Finds out when the next document is due, and reports each misfit (a document whose `sleepUntil` is not a date) once.
 */
class DueScan<Doc> {
  readonly #opened: Opened<Doc>;
  readonly #hooks: Hooks<Doc>;
  #known: unknown[] = [];

  constructor(opened: Opened<Doc>, hooks: Hooks<Doc>) {
    this.#opened = opened;
    this.#hooks = hooks;
  }

  /** False if the store has no `look`. */
  get canLook(): boolean {
    return this.#opened.store.look !== undefined;
  }

  /** Milliseconds until the next document is due if that is within `withinMs`, null otherwise. */
  async look(withinMs: number): Promise<number | null> {
    const { store, signal } = this.#opened;
    const known = this.#known;
    const answer = await asked('look for documents', async () => store.look?.({ withinMs, known, signal }));
    for (const misfit of answer?.misfits ?? []) await this.#report(misfit);
    return answer?.dueInMs ?? null;
  }

  async #report({ id, value }: Misfit): Promise<void> {
    if (this.#known.length >= MOST_KNOWN) return;
    this.#known = [...this.#known, id];
    await this.#hooks.error(misfitError(id, value), { where: 'sleepUntil' });
    if (this.#known.length < MOST_KNOWN) return;
    const most = `${String(MOST_KNOWN)} documents have a sleepUntil that is neither a date nor null; further ones are not reported.`;
    await this.#hooks.error(new OptionError(most), { where: 'sleepUntil' });
  }
}

const RETRY_MS = { min: 100, max: 5_000 };
const SHORT_MS = { min: 10, max: 1_000 };
/** How many due times are remembered; the poll finds the others. */
const MOST_PLANNED = 100;
/** A process that wakes up this much later than planned was suspended. */
const MOST_LATE_MS = 60_000;
/** How often a scheduler looks whether a pause of everything has ended. */
const PAUSED_LOOK_MS = 1_000;
/** How often a scheduler polls while it leaves documents to their holders. */
const GRACE_LOOK_MS = 500;

/** The loop of a scheduler: wait, lock and start as many documents as there is room for, or stay idle for a while. */
export class DueLoop<Doc> {
  readonly #options: DueLoopOptions<Doc>;
  readonly #scan: DueScan<Doc>;
  /** The last lock call found fewer documents than there was room for. */
  #quiet = false;
  readonly #idlePoll: Backoff;
  /** The wait after a limited lock call that found less than is due. */
  readonly #shortWait = new Backoff(SHORT_MS);
  /** When documents that ran here are due again. */
  #planned: number[] = [];
  #failingAt: number | undefined;
  /** Since when the loop has polled without a break: the store did not fail, and the process was not suspended. */
  #since: number;
  /** The latest time of the next poll; Infinity while every slot is taken. */
  #lookBy = Infinity;

  constructor(options: DueLoopOptions<Doc>) {
    this.#options = options;
    this.#scan = new DueScan(options.opened, options.hooks);
    this.#idlePoll = new Backoff(() => this.#pollMs);
    this.#since = options.clock.now();
  }

  /** How late a run may be without counting as missed, given how often this loop polls. */
  get attention(): Attention {
    const { settings, pollMs } = this.#options;
    return {
      delayMs: settings.nextMs + (settings.idleMs > 0 ? settings.idleMs : pollMs.max),
      since: this.#since,
    };
  }

  /** Milliseconds since the store began to fail; 0 while it answers. */
  get failingMs(): number {
    return this.#failingAt === undefined ? 0 : this.#options.clock.monotonic() - this.#failingAt;
  }

  /** Called when a document has ended. Wakes the loop if more documents may be due, or if nothing else runs. */
  freed(isBusy: boolean): void {
    if (!this.#quiet || !isBusy) this.#options.wake.notify();
  }

  /** Called when a document was given its next due time. */
  planned(at: Date): void {
    const { clock, wake, settings } = this.#options;
    if (settings.idleMs > 0 || this.#planned.length === MOST_PLANNED) return;
    this.#planned.push(at.getTime());
    if (this.#quiet && at.getTime() - clock.now() < this.#pollMs.max) wake.notify();
  }

  /** Runs until the stop. A lock call in progress may still hand documents to the runner. */
  async run(runner: LoopRunner<Doc>, stop: AbortSignal): Promise<void> {
    const { clock, wake, hooks, settings, grace } = this.#options;
    const retry = new Backoff(RETRY_MS);
    while (!stop.aborted) {
      if (settings.nextMs > 0 && !(await pause(clock, settings.nextMs, stop))) return;
      wake.clear();
      const lateMs = clock.now() - this.#lookBy;
      if (lateMs > MOST_LATE_MS) this.#since = clock.now();
      if (this.#failingAt === undefined) grace.wasLate(lateMs);
      const step = this.#step(runner, stop);
      clock.track?.(step);
      try {
        const waitMs = await step;
        if (this.#failingAt !== undefined) this.#since = clock.now();
        this.#lookBy = clock.now() + waitMs + settings.nextMs;
        retry.reset();
        this.#failingAt = undefined;
        if (waitMs > 0) await wake.wait(waitMs, stop);
      } catch (problem) {
        this.#failingAt ??= clock.monotonic();
        await hooks.error(problem, { where: 'lock' });
        await pause(clock, retry.next(), stop);
      }
    }
  }

  /** With a wake-up for every change, and a `look` that tells when the next document is due, nothing is polled. */
  get #pollMs(): PollMs {
    const { pollMs, isDirect } = this.#options;
    return isDirect() && this.#scan.canLook ? { ...pollMs, max: Infinity } : pollMs;
  }

  /** Returns how long to wait afterwards. */
  async #step(runner: LoopRunner<Doc>, stop: AbortSignal): Promise<number> {
    const { settings } = this.#options;
    const free = runner.room;
    // `freed` wakes the loop.
    if (free === 0) return Infinity;
    // A pause that cannot be read counts as a failure of the store: nothing starts.
    if (await asked('read the pause', this.#options.isPaused)) return PAUSED_LOOK_MS;
    const gate = this.#options.gate();
    // The gate wakes the loop.
    if (gate?.isClosed === true) return Infinity;
    const graceMs = await this.#graceMs();
    if (graceMs > 0) return Math.min(graceMs, GRACE_LOOK_MS);
    if (this.#quiet && settings.idleMs === 0) {
      const dueInMs = await this.#dueIn();
      if (dueInMs > 0) return this.#rest(runner, stop, dueInMs);
    }
    const grant = await this.#admit(gate, free);
    if (grant === null) return Infinity;
    const most = grant?.max ?? free;
    const found = await this.#lock(runner, most, grant);
    if (found > 0) this.#idlePoll.reset();
    this.#quiet = found < most;
    if (!this.#quiet) return 0;
    // Another instance may have been faster, or the grant too short: the permits wait for what is still due.
    if (grant !== undefined && settings.idleMs === 0 && this.#scan.canLook) {
      const dueInMs = await this.#dueIn();
      if (found > 0) this.#shortWait.reset();
      return dueInMs > 0 ? this.#rest(runner, stop, dueInMs) : this.#shortWait.next();
    }
    // Otherwise the look before the next lock call finds the misfits.
    if (settings.idleMs > 0 && found === 0 && this.#scan.canLook) await this.#look(0);
    return this.#rest(runner, stop);
  }

  /** Null: the limits let nothing through. */
  async #admit(gate: ScheduleGate | undefined, free: number): Promise<LockGrant | undefined | null> {
    if (gate !== undefined) await asked('ask the limits', () => gate.fresh());
    if (gate?.isLimited !== true) return undefined;
    // One grant is for one lock call.
    const wanted = this.#options.opened.store.lockMany === undefined ? 1 : free;
    return (await asked('ask the limits', () => gate.admit(wanted))) ?? null;
  }

  async #lock(runner: LoopRunner<Doc>, limit: number, grant: LockGrant | undefined): Promise<number> {
    if (grant === undefined) return this.#lockAll(runner, { limit });
    const receiver: LockReceiver<Doc> = {
      locked: (jobs) => grant.locked(jobs.map(({ id }) => idText(id))),
      start: (job, lock) => (grant.holds ? runner.start(job, lock) : runner.giveBack(job, lock)),
    };
    const { notAfter } = grant;
    try {
      return await this.#lockAll(receiver, { limit, ...(notAfter === undefined ? {} : { notAfter }) });
    } finally {
      grant.unused();
    }
  }

  async #lockAll(receiver: LockReceiver<Doc>, options: LockOptions): Promise<number> {
    const { locks, grace } = this.#options;
    try {
      const found = await locks.lock(options, receiver);
      grace.answered(found > 0 ? 'a write' : 'a read');
      return found;
    } catch (problem) {
      if (problem instanceof StoreError && problem.transient) grace.failed('a write');
      throw problem;
    }
  }

  async #look(withinMs: number): Promise<number | null> {
    const { grace } = this.#options;
    try {
      const dueInMs = await this.#scan.look(withinMs);
      grace.answered('a read');
      return dueInMs;
    } catch (problem) {
      grace.failed('a read');
      throw problem;
    }
  }

  /**
   * Milliseconds for which documents are still left to their holders; 0 if the store has no `look`, since without it
   * only a lock call could tell whether the store answers.
   */
  async #graceMs(): Promise<number> {
    const { grace } = this.#options;
    if (!this.#scan.canLook || !grace.isInDoubt) return 0;
    await this.#look(0);
    return grace.leftMs;
  }

  /**
   * Milliseconds until a document is due; 0 means now. `look` costs less than a lock call that finds nothing. Without
   * it, the loop always tries to lock.
   */
  async #dueIn(): Promise<number> {
    if (!this.#scan.canLook) return 0;
    return Math.max(0, (await this.#look(this.#pollMs.max)) ?? Infinity);
  }

  async #rest({ isBusy }: LoopRunner<Doc>, stop: AbortSignal, dueInMs = Infinity): Promise<number> {
    const { clock, settings, hooks } = this.#options;
    if (!isBusy) await hooks.idle({ signal: stop });
    if (settings.idleMs > 0) return settings.idleMs;
    const now = clock.now();
    this.#planned = this.#planned.filter((at) => at > now);
    return Math.min(this.#idlePoll.next(), Math.max(1, dueInMs), ...this.#planned.map((at) => at - now));
  }
}
