import type { Clock } from '../../core/clock.js';
import { LeaseLostError } from '../../core/errors.js';
import { BatchRecorder, type BatchWriter, type Written } from '../../engine/record/batch-recorder.js';
import type { Fenced } from '../../store/documents.js';
import type { LockKeeper } from './lock-keeper.js';
import type { Ending, LockedDocument } from './locked-document.js';
import { asked, writeEndings, type Opened } from './writes.js';

export interface RecorderOptions<Doc> {
  readonly opened: Opened<Doc>;
  readonly clock: Clock;
  /** A renewal in progress could change what a write has to match. */
  readonly keeper: Pick<LockKeeper<Doc>, 'settled'>;
  readonly error: (error: unknown, locked?: LockedDocument<Doc>) => void;
}

/** The end of a run on its way to the store. */
interface Recording<Doc> {
  readonly locked: LockedDocument<Doc>;
  /** Decides what to write, given the document's current schedule: a crash before the run, or the outcome of the run. */
  readonly decide: () => Ending;
  readonly done: (recorded: boolean) => void;
}

/** Records the outcomes of runs: those of the same moment together, retried until the store answers. */
export class Recorder<Doc> implements BatchWriter<Recording<Doc>> {
  readonly #options: RecorderOptions<Doc>;
  readonly #recorder: BatchRecorder<Recording<Doc>>;

  constructor(options: RecorderOptions<Doc>) {
    this.#options = options;
    const { clock, error } = options;
    this.#recorder = new BatchRecorder({ writer: this, clock, error: (problem) => error(problem) });
  }

  /**
   * Returns whether the outcome was written. It is not if another process has the document or gave it another time.
   * `decide` is called again if the schedule changed during the run.
   */
  record(locked: LockedDocument<Doc>, decide: () => Ending): Promise<boolean> {
    return new Promise((done) => this.#recorder.push({ locked, decide, done }));
  }

  /** Resolves when everything is recorded, or after `limitMs`. Returns how many outcomes were not recorded. */
  async drain(limitMs: number): Promise<number> {
    const left = await this.#recorder.drain(limitMs);
    for (const { done } of this.#recorder.unrecorded()) done(false);
    return left;
  }

  async write(batch: readonly Recording<Doc>[]): Promise<readonly Written<Recording<Doc>>[]> {
    const endings = batch.map(({ locked, decide }) => ({ locked, ending: decide(), basis: locked.basis }));
    await this.#options.keeper.settled();
    try {
      const written = await writeEndings(this.#options.opened, endings);
      const changed: boolean[] = [];
      for (const [index, { locked, basis }] of endings.entries())
        changed.push(written[index] !== true && (await this.#isChanged(locked, basis)));
      return batch.map((recording, index) => {
        if (changed[index] === true) return { again: recording };
        this.#end(recording, written[index] === true);
        return 'done';
      });
    } catch (error) {
      for (const { locked } of batch) locked.isDoubtful = true;
      throw error;
    }
  }

  /** What the end of a run writes has a fixed size. */
  smaller(): undefined {
    return undefined;
  }

  nameOf({ locked: { id } }: Recording<Doc>): { readonly name: string; readonly id: string } {
    return { name: 'documents', id };
  }

  /**
   * Finds out why a write matched nothing. Returns true if the schedule changed, and false if the document is gone or
   * another process has it.
   */
  async #isChanged(locked: LockedDocument<Doc>, { ifRevision }: Fenced): Promise<boolean> {
    const { store, signal } = this.#options.opened;
    if (store.current === undefined || ifRevision === undefined) return false;
    const current = await asked('read a document', async () => store.current?.(locked.key, { signal }));
    if (current !== null && current !== undefined) return locked.learn(current);
    locked.isForgone = true;
    return false;
  }

  /** Reports a lock that ran out. A change of the document within its lock was deliberate and is not reported. */
  #end({ locked, done }: Recording<Doc>, recorded: boolean): void {
    if (!recorded && !locked.isDoubtful && !locked.isForgone && locked.isOver(this.#options.clock)) {
      const message = `${locked.id}: its lock ended before its outcome was recorded; it may run twice.`;
      this.#options.error(new LeaseLostError(message), locked);
    }
    done(recorded);
  }
}
