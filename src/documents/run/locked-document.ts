import type { Clock, Timer } from '../../core/clock.js';
import { LeaseLostError } from '../../core/errors.js';
import { idText } from '../../core/text/paths.js';
import type { DocumentJob, DocumentWrite, Fenced } from '../../store/documents.js';

/** The value that a lock wrote, and when the lock ends by this process's clock. */
export interface Lock {
  readonly until: Date;
  /** Monotonic time; Infinity if there is no lock. */
  readonly endsAt: number;
  /** False with a lock duration of 0: the value then does not tell who wrote it. */
  readonly fenced: boolean;
}

/** What the end of a run writes. */
export type Ending = DocumentWrite extends infer W
  ? W extends unknown
    ? Omit<W, 'id' | keyof Fenced>
    : never
  : never;

/** If the schedule keeps changing, after this many reads the one read last decides, without a check of its revision. */
const MOST_LOOKS = 10;

/** Limits the possible values, because renewals continue throughout an outage of any length. */
const MOST_VALUES = 3;

/** A document that this scheduler has locked. */
export class LockedDocument<Doc> {
  readonly key: unknown;
  readonly id: string;
  job: DocumentJob<Doc>;
  /** A final write was not answered, so it may have been made. */
  isDoubtful = false;
  /**
   * Another writer deleted or rescheduled the document while the lock held. That was deliberate, and no other process
   * runs the document.
   */
  isForgone = false;
  /** A stop has given up on it: the outcome of its handler is ignored. */
  isAbandoned = false;
  /** Its handler was called. */
  wasStarted = false;
  #looks = 0;
  /** Values that `sleepUntil` may have unless another process wrote it; the likeliest first. */
  #values: readonly [Date, ...Date[]];
  #endsAt: number;
  #deadline: Timer | undefined;
  readonly #fenced: boolean;
  readonly #controller = new AbortController();

  constructor(job: DocumentJob<Doc>, lock: Lock) {
    this.key = job.id;
    this.id = idText(job.id);
    this.job = job;
    this.#values = [lock.until];
    this.#endsAt = lock.endsAt;
    this.#fenced = lock.fenced;
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** The end of the lock, as far as this process knows. */
  get lockedUntil(): Date {
    return this.#values[0];
  }

  /** The preconditions of a write, one for each possible value of `sleepUntil`. */
  get fences(): readonly Fenced[] {
    return this.#fenced ? this.#values.map((ifSleepUntil) => ({ ifSleepUntil })) : [{}];
  }

  /** The further precondition of a write that was decided from the schedule: its revision. */
  get basis(): Fenced {
    const { revision } = this.job;
    return revision === undefined || this.#looks >= MOST_LOOKS ? {} : { ifRevision: revision };
  }

  /** Takes over the schedule as it is now. Returns false if `sleepUntil` no longer has a value of this lock. */
  learn(current: DocumentJob<Doc>): boolean {
    const at = current.sleepUntil instanceof Date ? current.sleepUntil.getTime() : null;
    if (this.#fenced && !this.#values.some((value) => value.getTime() === at)) return false;
    const { sleepUntil = null, failure = null, lockedUntil = null, document } = this.job;
    this.job = {
      ...current,
      sleepUntil,
      failure,
      lockedUntil,
      ...(document === undefined ? {} : { document }),
    };
    this.#looks += 1;
    return true;
  }

  /** True if the lock has ended by this process's clock, so that another process may take the document. */
  isOver(clock: Clock): boolean {
    return clock.monotonic() >= this.#endsAt;
  }

  /** Aborts the handler's signal if the lock ends before it is renewed. */
  arm(clock: Clock): void {
    this.#deadline?.cancel();
    if (this.#endsAt === Infinity) return;
    const lose = (): void =>
      this.abort(new LeaseLostError(`${this.id}: its lock could not be renewed in time.`));
    this.#deadline = clock.timer(this.#endsAt - clock.monotonic(), lose);
  }

  disarm(): void {
    this.#deadline?.cancel();
  }

  renewed({ until, endsAt }: Lock): void {
    this.#values = [until];
    this.#endsAt = endsAt;
  }

  /** The document has the likeliest value. */
  confirmed(): void {
    this.#values = [this.#values[0]];
  }

  /**
   * True if so many renewals went unanswered that one more possible value would be too many: each costs a write to try.
   */
  get isUncertain(): boolean {
    return this.#values.length > MOST_VALUES;
  }

  /** A renewal was not answered: the document may have the old value or this one. */
  mayBeRenewed({ until }: Lock): void {
    this.#values = [until, ...this.#values];
  }

  abort(reason: Error): void {
    this.#controller.abort(reason);
  }
}
