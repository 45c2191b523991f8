import type { Clock, Timer } from '../../core/clock.js';
import { LeaseLostError } from '../../core/errors.js';
import { idText } from '../../core/text/paths.js';
import type { Work } from '../../core/records/work.js';
import type { DocumentJob, DocumentWrite, Fenced } from '../../store/documents.js';

/** What a lock wrote, and until when it holds by this process's reckoning. */
export interface Lock {
  readonly until: Date;
  /** Monotonic; Infinity where there is no lock. */
  readonly endsAt: number;
  /** False with a lock duration of 0: its value says nothing about who wrote it. */
  readonly fenced: boolean;
}

/** What the end of a run writes. */
export type Ending = DocumentWrite extends infer W
  ? W extends unknown
    ? Omit<W, 'id' | keyof Fenced>
    : never
  : never;

/** A schedule that is another one each time it is looked at is concluded at last by the latest of them. */
const MOST_LOOKS = 10;

/** An outage may be as long as it likes, and renewals are tried throughout. */
const MOST_VALUES = 3;

/** A document that this scheduler has locked. */
export class LockedDocument<Doc> implements Work {
  readonly key: unknown;
  readonly id: string;
  readonly name = 'documents';
  readonly lockedAt = null;
  job: DocumentJob<Doc>;
  /** What is to be written of it: a crash that is counted before the run, and what the run has come to. */
  decide: (() => Ending) | undefined;
  /** A final write was not answered: it may have been made. */
  isDoubtful = false;
  /** Its document was deleted or given another time while the lock held: somebody meant that, and nobody else runs it. */
  isForgone = false;
  /** Given up by a stop: what its handler still comes to is nobody's business. */
  isAbandoned = false;
  #looks = 0;
  /** What `sleepUntil` may be, if nobody else wrote it; the likeliest first. */
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

  /** The end of its lock, as far as this process knows. */
  get lockedUntil(): Date {
    return this.#values[0];
  }

  /** Every precondition under which the lock may be renewed. */
  get fences(): readonly Fenced[] {
    return this.#fenced ? this.#values.map((ifSleepUntil) => ({ ifSleepUntil })) : [{}];
  }

  /** What has to hold besides, for what was decided of the schedule to be written. */
  get basis(): Fenced {
    const { revision } = this.job;
    return revision === undefined || this.#looks >= MOST_LOOKS ? {} : { ifRevision: revision };
  }

  /** Learns the schedule as it is now; false where the lock is another's by now. */
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

  /** True where the lock is over by this process's reckoning, so that others may have it by right. */
  isOver(clock: Clock): boolean {
    return clock.monotonic() >= this.#endsAt;
  }

  /** Aborts the handler's signal when the lock ends before it was renewed. */
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

  /** The value that was likeliest is the one that is there. */
  confirmed(): void {
    this.#values = [this.#values[0]];
  }

  /** So many renewals were not answered that another value would be one too many: each costs a write to be tried. */
  get isUncertain(): boolean {
    return this.#values.length > MOST_VALUES;
  }

  /** A renewal was not answered: either value may be there now. */
  mayBeRenewed({ until }: Lock): void {
    this.#values = [until, ...this.#values];
  }

  abort(reason: Error): void {
    this.#controller.abort(reason);
  }
}
