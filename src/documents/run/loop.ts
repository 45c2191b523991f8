import { Backoff } from '../../core/backoff.js';
import { pause, type Clock } from '../../core/clock.js';
import { StoreError } from '../../core/errors.js';
import type { Wake } from '../../engine/claim/wake.js';
import type { OutageGrace } from './outage-grace.js';
import type { PollMs, ScheduleSettings } from '../options.js';

export interface DueLoopOptions {
  readonly clock: Clock;
  readonly wake: Wake;
  readonly grace: OutageGrace;
  readonly settings: Pick<ScheduleSettings, 'nextMs' | 'idleMs'>;
  readonly pollMs: () => PollMs;
  /** How many documents may start now. */
  readonly room: () => number;
  /** Locks up to that many documents and starts them; returns how many there were. */
  readonly lock: (limit: number) => Promise<number>;
  /** Milliseconds until the next document is due if that is within `withinMs`, null otherwise. */
  readonly look?: ((withinMs: number) => Promise<number | null>) | undefined;
  /** True while a document runs or its outcome is being recorded. */
  readonly busy: () => boolean;
  /** Called when there is nothing to do. */
  readonly idle: () => Promise<void>;
  readonly error: (error: unknown) => Promise<void>;
}

const RETRY_MS = { min: 100, max: 5_000 };
/** How many due times are remembered; the poll finds the others. */
const MOST_PLANNED = 100;
/** A process that wakes up this much later than planned was suspended. */
const MOST_LATE_MS = 60_000;
/** How often a scheduler polls while it leaves documents to their holders. */
const GRACE_LOOK_MS = 500;

/** The loop of a scheduler: wait, lock and start as many documents as there is room for, or stay idle for a while. */
export class DueLoop {
  readonly #options: DueLoopOptions;
  /** The last lock call found fewer documents than there was room for. */
  #quiet = false;
  readonly #idlePoll: Backoff;
  /** When documents that ran here are due again. */
  #planned: number[] = [];
  #failingAt: number | undefined;
  #since: number;
  /** The latest time of the next poll; Infinity while every slot is taken. */
  #lookBy = Infinity;

  constructor(options: DueLoopOptions) {
    this.#options = options;
    this.#idlePoll = new Backoff(options.pollMs);
    this.#since = options.clock.now();
  }

  /** Since when the loop has polled without a break: the store did not fail, and the process was not suspended. */
  get since(): number {
    return this.#since;
  }

  /** Milliseconds since the store began to fail; 0 while it answers. */
  get failingMs(): number {
    return this.#failingAt === undefined ? 0 : this.#options.clock.monotonic() - this.#failingAt;
  }

  /** Called when a document has ended. Wakes the loop if more documents may be due, or if nothing else runs. */
  freed(): void {
    const { wake, busy } = this.#options;
    if (!this.#quiet || !busy()) wake.notify();
  }

  /** Called when a document was given its next due time. */
  planned(at: Date): void {
    const { clock, wake, settings, pollMs } = this.#options;
    if (settings.idleMs > 0 || this.#planned.length === MOST_PLANNED) return;
    this.#planned.push(at.getTime());
    if (this.#quiet && at.getTime() - clock.now() < pollMs().max) wake.notify();
  }

  async run(stop: AbortSignal): Promise<void> {
    const { clock, wake, error, settings, grace } = this.#options;
    const retry = new Backoff(RETRY_MS);
    while (!stop.aborted) {
      if (settings.nextMs > 0 && !(await pause(clock, settings.nextMs, stop))) return;
      wake.clear();
      const lateMs = clock.now() - this.#lookBy;
      if (lateMs > MOST_LATE_MS) this.#since = clock.now();
      if (this.#failingAt === undefined) grace.wasLate(lateMs);
      const step = this.#step();
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
        await error(problem);
        await pause(clock, retry.next(), stop);
      }
    }
  }

  /** Returns how long to wait afterwards. */
  async #step(): Promise<number> {
    const { room, settings } = this.#options;
    const free = room();
    // `freed` wakes the loop.
    if (free === 0) return Infinity;
    const graceMs = await this.#graceMs();
    if (graceMs > 0) return Math.min(graceMs, GRACE_LOOK_MS);
    if (this.#quiet && settings.idleMs === 0) {
      const dueInMs = await this.#dueIn();
      if (dueInMs > 0) return this.#rest(dueInMs);
    }
    const found = await this.#lock(free);
    if (found > 0) this.#idlePoll.reset();
    this.#quiet = found < free;
    return this.#quiet ? this.#rest() : 0;
  }

  async #lock(limit: number): Promise<number> {
    const { lock, grace } = this.#options;
    try {
      const found = await lock(limit);
      grace.answered(found > 0 ? 'a write' : 'a read');
      return found;
    } catch (problem) {
      if (problem instanceof StoreError && problem.transient) grace.failed('a write');
      throw problem;
    }
  }

  async #look(withinMs: number): Promise<number | null> {
    const { look, grace } = this.#options;
    try {
      const dueInMs = (await look?.(withinMs)) ?? null;
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
    const { look, grace } = this.#options;
    if (look === undefined || !grace.isInDoubt) return 0;
    await this.#look(0);
    return grace.leftMs;
  }

  /**
   * Milliseconds until a document is due; 0 means now. `look` costs less than a lock call that finds nothing. Without
   * it, the loop always tries to lock.
   */
  async #dueIn(): Promise<number> {
    const { look, pollMs } = this.#options;
    return look === undefined ? 0 : Math.max(0, (await this.#look(pollMs().max)) ?? Infinity);
  }

  async #rest(dueInMs = Infinity): Promise<number> {
    const { clock, settings, busy, idle } = this.#options;
    if (!busy()) await idle();
    if (settings.idleMs > 0) return settings.idleMs;
    const now = clock.now();
    this.#planned = this.#planned.filter((at) => at > now);
    return Math.min(this.#idlePoll.next(), Math.max(1, dueInMs), ...this.#planned.map((at) => at - now));
  }
}
