import type { Clock } from '../../core/clock.js';
import { LeaseLostError } from '../../core/errors.js';
import { Settler } from '../../engine/record/settler.js';
import type { Fenced } from '../../store/documents.js';
import type { SettleAnswer } from '../../store/work.js';
import type { Ending, Held } from './locked-document.js';
import { asked, writeEndings, type Opened } from './writes.js';

export interface RecorderOptions<Doc> {
  readonly opened: Opened<Doc>;
  readonly clock: Clock;
  /** Resolves when no renewal is under way that could change what a write has to match. */
  readonly settled: () => Promise<unknown>;
  readonly error: (error: unknown, held?: Held<Doc>) => void;
}

interface Settlement<Doc> {
  readonly held: Held<Doc>;
  readonly ending: Ending;
  /** What was decided follows from this. */
  readonly basis: Fenced;
}

/** Records how runs have ended, by the engine's settler: those of the same moment together, until the store answers. */
export class Recorder<Doc> {
  readonly #options: RecorderOptions<Doc>;
  readonly #settler: Settler<Held<Doc>, Settlement<Doc>>;
  readonly #waiting = new Map<Held<Doc>, (recorded: boolean) => void>();
  /** Those whose schedule was changed while they ran, to be decided again. */
  readonly #changed: Held<Doc>[] = [];

  constructor(options: RecorderOptions<Doc>) {
    this.#options = options;
    this.#settler = new Settler<Held<Doc>, Settlement<Doc>>({
      store: {
        settle: (settlements) => this.#settle(settlements),
        held: async (leases) => leases.map(({ key }) => this.#takeChanged(key)),
      },
      clock: options.clock,
      trigger: {
        conclude: (held) => ({
          settlement: { held, ending: (held.decide as () => Ending)(), basis: held.basis },
        }),
        recorded: (held) => this.#done(held, true),
      },
      lost: (held) => this.#lost(held),
      error: (error) => options.error(error),
      drained: () => undefined,
    });
  }

  /**
   * Answers whether it was written; not where somebody else has the document, or has given it another time. `decide` is asked
   * again where the schedule was changed during the run.
   */
  record(held: Held<Doc>, decide: () => Ending): Promise<boolean> {
    held.decide = decide;
    const finishedAt = this.#options.clock.now();
    return new Promise((resolve) => {
      this.#waiting.set(held, resolve);
      this.#settler.push({ work: held, finished: { outcome: { kind: 'released' }, finishedAt } });
    });
  }

  /** Resolves when everything is recorded, or given up after `limitMs`; answers how many were not. */
  async drain(limitMs: number): Promise<number> {
    const left = await this.#settler.drain(limitMs);
    for (const held of [...this.#waiting.keys()]) this.#done(held, false);
    return left;
  }

  #done(held: Held<Doc>, recorded: boolean): void {
    this.#waiting.get(held)?.(recorded);
    this.#waiting.delete(held);
  }

  async #settle(settlements: readonly Settlement<Doc>[]): Promise<readonly SettleAnswer[]> {
    await this.#options.settled();
    try {
      const written = await writeEndings(this.#options.opened, settlements);
      const answers: SettleAnswer[] = [];
      for (const [index, { held, basis }] of settlements.entries())
        answers.push(written[index] === true ? 'settled' : await this.#refused(held, basis));
      return answers;
    } catch (error) {
      for (const { held } of settlements) held.isDoubtful = true;
      throw error;
    }
  }

  /** A write that found nothing: the schedule was changed, or the document is gone or another's. */
  async #refused(held: Held<Doc>, { ifRevision }: Fenced): Promise<SettleAnswer> {
    const { store, signal } = this.#options.opened;
    if (store.current === undefined || ifRevision === undefined) return 'lost';
    const current = await asked('read a document', async () => store.current?.(held.key, { signal }));
    if (current === null || current === undefined) held.isForgone = true;
    else if (held.learn(current)) {
      this.#changed.push(held);
      return 'changed';
    }
    return 'lost';
  }

  #takeChanged(key: unknown): Held<Doc> | undefined {
    const index = this.#changed.findIndex((held) => held.key === key);
    return index === -1 ? undefined : this.#changed.splice(index, 1)[0];
  }

  /** Somebody who wrote the document within its lock meant to; a lock that ran out is worth a word. */
  #lost(held: Held<Doc>): void {
    if (!held.isDoubtful && !held.isForgone && held.isOver(this.#options.clock)) {
      const message = `${held.id}: its lock ran out before its end could be recorded; it may run twice.`;
      this.#options.error(new LeaseLostError(message), held);
    }
    this.#done(held, false);
  }
}
