import type { Clock, Timer } from '../core/clock.js';
import type { LogLine } from '../core/job.js';
import type { Lease, Note } from '../store/port.js';
import type { AttemptControl, Extra } from './trigger.js';

const FLUSH_MS = 500;

interface Entry {
  readonly lease: Lease;
  progress?: { value: unknown };
  logs: LogLine[];
  readonly hold: boolean;
}

/** Gathers progress and log lines, and writes them now and then; what is left goes with the settlement. */
export class Notebook {
  readonly #clock: Clock;
  readonly #write: (notes: readonly Note[]) => Promise<void>;
  readonly #error: (error: unknown) => void;
  readonly #entries = new Map<string, Entry>();
  #timer: Timer | undefined;
  #writing: Promise<void> = Promise.resolve();

  constructor(
    clock: Clock,
    write: (notes: readonly Note[]) => Promise<void>,
    error: (error: unknown) => void,
  ) {
    this.#clock = clock;
    this.#write = write;
    this.#error = error;
  }

  /** `hold`: keep it for the settlement. */
  add(lease: Lease, note: Parameters<AttemptControl['note']>[0], hold: boolean): void {
    const entry = this.#entries.get(lease.id) ?? { lease, logs: [], hold };
    if (note.progress !== undefined) entry.progress = note.progress;
    if (note.log !== undefined) entry.logs.push({ at: new Date(this.#clock.now()), ...note.log });
    this.#entries.set(lease.id, entry);
    this.#timer ??= this.#clock.timer(FLUSH_MS, () => this.#flush());
  }

  /** What has not been written yet of one attempt, for its settlement. */
  async take(lease: Lease): Promise<Extra | undefined> {
    const entry = this.#entries.get(lease.id);
    this.#entries.delete(lease.id);
    // What is being written must not be overtaken by the settlement, which would refuse it.
    await this.#writing;
    if (entry === undefined) return undefined;
    return {
      ...(entry.progress === undefined ? {} : { progress: entry.progress }),
      ...(entry.logs.length === 0 ? {} : { logs: entry.logs }),
    };
  }

  stop(): Promise<void> {
    this.#timer?.cancel();
    return this.#writing;
  }

  #flush(): void {
    this.#timer = undefined;
    const notes = [...this.#entries.values()].filter((entry) => !entry.hold);
    for (const { lease } of notes) this.#entries.delete(lease.id);
    if (notes.length === 0) return;
    this.#writing = this.#write(notes).catch(this.#error);
    this.#clock.track?.(this.#writing);
  }
}
