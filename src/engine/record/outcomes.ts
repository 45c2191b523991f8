import type { Work } from '../../core/records/work.js';
import type { Settling } from '../work-runner.js';
import { BatchRecorder, type BatchRecorderOptions } from './batch-recorder.js';
import type { RefusedOutcome } from './refused-outcomes.js';

/** With this many refused outcomes, a name is not run here until the database takes some of them. */
const MOST_REFUSED = 100;

/**
 * The outcomes of one engine on their way to the store. Those of work that a user's open transaction may have locked
 * have a recorder of their own, because their write may wait and must not delay others.
 */
export class Outcomes<W extends Work> {
  readonly #recorder: BatchRecorder<Settling<W>>;
  readonly #apart: BatchRecorder<Settling<W>>;

  constructor(options: BatchRecorderOptions<Settling<W>>) {
    this.#recorder = new BatchRecorder(options);
    this.#apart = new BatchRecorder(options);
  }

  /** How many wait to be written, without those that the database refuses: those only hold back their own names. */
  get backlog(): number {
    return this.#recorder.backlog + this.#apart.backlog;
  }

  /** Outcomes that the database refuses. */
  get refused(): readonly RefusedOutcome[] {
    return [...this.#recorder.refused, ...this.#apart.refused];
  }

  /** Milliseconds since the oldest batch in progress began. A write that may wait for a transaction does not count. */
  get writingMs(): number {
    return this.#recorder.writingMs;
  }

  /** `mayWait`: a user's open transaction may have locked the work. */
  push(settling: Settling<W>, mayWait = false): void {
    (mayWait ? this.#apart : this.#recorder).push(settling);
  }

  /** Names of which the database refuses many outcomes. They must neither stop other names nor fill the memory. */
  crowded(): ReadonlySet<string> {
    const counts = new Map<string, number>();
    for (const { name } of this.refused) counts.set(name, (counts.get(name) ?? 0) + 1);
    return new Set([...counts.keys()].filter((name) => (counts.get(name) ?? 0) >= MOST_REFUSED));
  }

  /** Returns the work whose outcome is not recorded yet. */
  unrecorded(): readonly W[] {
    return [...this.#recorder.unrecorded(), ...this.#apart.unrecorded()].map(({ work }) => work);
  }

  /** Waits until everything is recorded, but gives up after `limitMs`. Returns how many outcomes were not recorded. */
  async drain(limitMs: number): Promise<number> {
    const left = await Promise.all([this.#recorder.drain(limitMs), this.#apart.drain(limitMs)]);
    return left.reduce((sum, count) => sum + count, 0);
  }
}
