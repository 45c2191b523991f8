import type { Clock, Timer } from '../../core/clock.js';
import { StoreError } from '../../core/errors.js';
import { bisect, type Blame } from '../../core/batches/bisect.js';
import { LOG_LIMIT, type LogLine } from '../../core/records/job.js';
import type { Lease, Note } from '../../store/port.js';
import type { AttemptControl, Extra } from '../work-runner.js';

const FLUSH_MS = 500;

interface Entry {
  readonly lease: Lease;
  progress?: { value: unknown };
  readonly logs: LogLine[];
  readonly isHeld: () => boolean;
}

const blame = (error: unknown): Blame =>
  error instanceof StoreError && error.transient ? 'again' : 'choked';

/**
 * Collects progress and log lines and writes them every half second, one write at a time. What is left goes into the
 * settlement. Of the lines not written yet, only the newest `LOG_LIMIT` are kept, as many as a job keeps.
 */
export class Notebook {
  readonly #clock: Clock;
  readonly #write: (notes: readonly Note[]) => Promise<void>;
  readonly #error: (error: unknown) => void;
  readonly #entries = new Map<string, Entry>();
  #timer: Timer | undefined;
  #writing: Promise<void> | undefined;
  #stopped = false;

  constructor(
    clock: Clock,
    write: (notes: readonly Note[]) => Promise<void>,
    error: (error: unknown) => void,
  ) {
    this.#clock = clock;
    this.#write = write;
    this.#error = error;
  }

  /** While `isHeld` returns true, the note is kept for the settlement. Checked before each write. */
  add(lease: Lease, note: Parameters<AttemptControl['note']>[0], isHeld: () => boolean): void {
    const entry = this.#entries.get(lease.id) ?? { lease, logs: [], isHeld };
    if (note.progress !== undefined) entry.progress = note.progress;
    if (note.log !== undefined) entry.logs.push({ at: new Date(this.#clock.now()), ...note.log });
    if (entry.logs.length > LOG_LIMIT) entry.logs.shift();
    this.#entries.set(lease.id, entry);
    if (!isHeld()) this.#arm();
  }

  /** Returns what has not been written of one attempt, and keeps it: a transaction may be tried again. */
  unwritten({ id }: Lease): Extra | undefined {
    const entry = this.#entries.get(id);
    if (entry === undefined) return undefined;
    return {
      ...(entry.progress === undefined ? {} : { progress: entry.progress }),
      ...(entry.logs.length === 0 ? {} : { logs: [...entry.logs] }),
    };
  }

  /** Removes and returns what has not been written of one attempt, for its settlement. */
  async take(lease: Lease): Promise<Extra | undefined> {
    const extra = this.unwritten(lease);
    this.#entries.delete(lease.id);
    // The settlement must not overtake a write in progress: the store would refuse that write.
    await this.#writing;
    return extra;
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#timer?.cancel();
    await this.#writing;
  }

  /** The next write waits for the one in progress, so that older progress never overwrites newer. */
  #arm(): void {
    if (this.#timer !== undefined || this.#writing !== undefined || this.#stopped) return;
    this.#timer = this.#clock.timer(FLUSH_MS, () => this.#flush());
  }

  #flush(): void {
    this.#timer = undefined;
    const notes = [...this.#entries.values()].filter(({ isHeld }) => !isHeld());
    for (const { lease } of notes) this.#entries.delete(lease.id);
    if (notes.length === 0) return;
    this.#writing = this.#send(notes).finally(() => {
      this.#writing = undefined;
      if ([...this.#entries.values()].some(({ isHeld }) => !isHeld())) this.#arm();
    });
    this.#clock.track?.(this.#writing);
  }

  /** Best effort. If the database refuses the notes of one job, those of the others are still written. */
  async #send(notes: readonly Note[]): Promise<void> {
    try {
      const choked = await bisect(notes, (part) => this.#write(part), blame);
      for (const { item, reason } of choked)
        this.#error(new StoreError(`progress and log lines of ${item.lease.id} were not stored: ${reason}`));
    } catch (error) {
      this.#error(error);
    }
  }
}
