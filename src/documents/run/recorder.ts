import type { Clock } from '../../core/clock.js';
import { LeaseLostError } from '../../core/errors.js';
import { Settler } from '../../engine/record/settler.js';
import type { Fenced } from '../../store/documents.js';
import type { SettleAnswer } from '../../store/work.js';
import type { Ending, LockedDocument } from './locked-document.js';
import { asked, writeEndings, type Opened } from './writes.js';

export interface RecorderOptions<Doc> {
  readonly opened: Opened<Doc>;
  readonly clock: Clock;
  /** Resolves when no renewal is in progress that could change what a write has to match. */
  readonly settled: () => Promise<unknown>;
  readonly error: (error: unknown, locked?: LockedDocument<Doc>) => void;
}

interface Settlement<Doc> {
  readonly locked: LockedDocument<Doc>;
  readonly ending: Ending;
  /** The schedule's revision that the decision was made from. */
  readonly basis: Fenced;
}

/**
 * Records the outcomes of runs with the engine's settler: those of the same moment together, retried until the store
 * answers.
 */
export class Recorder<Doc> {
  readonly #options: RecorderOptions<Doc>;
  readonly #settler: Settler<LockedDocument<Doc>, Settlement<Doc>>;
  readonly #waiting = new Map<LockedDocument<Doc>, (recorded: boolean) => void>();
  /** Documents whose schedule changed while they ran; their outcome is decided again. */
  readonly #changed: LockedDocument<Doc>[] = [];

  constructor(options: RecorderOptions<Doc>) {
    this.#options = options;
    this.#settler = new Settler<LockedDocument<Doc>, Settlement<Doc>>({
      store: {
        settle: (settlements) => this.#settle(settlements),
        held: async (leases) => leases.map(({ key }) => this.#takeChanged(key)),
      },
      clock: options.clock,
      runner: {
        conclude: (locked) => ({
          settlement: { locked, ending: (locked.decide as () => Ending)(), basis: locked.basis },
        }),
        recorded: (locked) => this.#done(locked, true),
      },
      lost: (locked) => this.#lost(locked),
      error: (error) => options.error(error),
      drained: () => undefined,
    });
  }

  /**
   * Returns whether the outcome was written. It is not if another process has the document or gave it another time.
   * `decide` is called again if the schedule changed during the run.
   */
  record(locked: LockedDocument<Doc>, decide: () => Ending): Promise<boolean> {
    locked.decide = decide;
    const finishedAt = this.#options.clock.now();
    return new Promise((resolve) => {
      this.#waiting.set(locked, resolve);
      this.#settler.push({ work: locked, finished: { outcome: { kind: 'released' }, finishedAt } });
    });
  }

  /** Resolves when everything is recorded, or after `limitMs`. Returns how many outcomes were not recorded. */
  async drain(limitMs: number): Promise<number> {
    const left = await this.#settler.drain(limitMs);
    for (const locked of [...this.#waiting.keys()]) this.#done(locked, false);
    return left;
  }

  #done(locked: LockedDocument<Doc>, recorded: boolean): void {
    this.#waiting.get(locked)?.(recorded);
    this.#waiting.delete(locked);
  }

  async #settle(settlements: readonly Settlement<Doc>[]): Promise<readonly SettleAnswer[]> {
    await this.#options.settled();
    try {
      const written = await writeEndings(this.#options.opened, settlements);
      const answers: SettleAnswer[] = [];
      for (const [index, { locked, basis }] of settlements.entries())
        answers.push(written[index] === true ? 'settled' : await this.#refused(locked, basis));
      return answers;
    } catch (error) {
      for (const { locked } of settlements) locked.isDoubtful = true;
      throw error;
    }
  }

  /** Handles a write that matched nothing: the schedule changed, the document is gone, or another process has it. */
  async #refused(locked: LockedDocument<Doc>, { ifRevision }: Fenced): Promise<SettleAnswer> {
    const { store, signal } = this.#options.opened;
    if (store.current === undefined || ifRevision === undefined) return 'lost';
    const current = await asked('read a document', async () => store.current?.(locked.key, { signal }));
    if (current === null || current === undefined) locked.isForgone = true;
    else if (locked.learn(current)) {
      this.#changed.push(locked);
      return 'changed';
    }
    return 'lost';
  }

  #takeChanged(key: unknown): LockedDocument<Doc> | undefined {
    const index = this.#changed.findIndex((locked) => locked.key === key);
    return index === -1 ? undefined : this.#changed.splice(index, 1)[0];
  }

  /** Reports a lock that ran out. A change of the document within its lock was deliberate and is not reported. */
  #lost(locked: LockedDocument<Doc>): void {
    if (!locked.isDoubtful && !locked.isForgone && locked.isOver(this.#options.clock)) {
      const message = `${locked.id}: its lock ended before its outcome was recorded; it may run twice.`;
      this.#options.error(new LeaseLostError(message), locked);
    }
    this.#done(locked, false);
  }
}
