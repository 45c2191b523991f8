import type { Work } from '../../core/records/work.js';
import type { LaneOptions, Lanes } from './lanes.js';

export interface DefinedNamesOptions<W extends Work> {
  readonly lanes: Lanes<W>;
  /** The definitions; another map after each change. */
  readonly workers: () => ReadonlyMap<string, LaneOptions>;
  /** Names whose outcomes the database refuses. */
  readonly crowded: () => ReadonlySet<string>;
  /** False if a limit of the name counts what waits in a buffer. */
  readonly mayTakeAhead: (name: string) => boolean;
  /** The most of one key of a name that may run at once. */
  readonly mostOfKey: (name: string) => number;
  readonly release: (works: readonly W[]) => void;
}

/** The names that are run here now. */
export class DefinedNames<W extends Work> {
  readonly #options: DefinedNamesOptions<W>;
  /** The definitions that the lanes have. */
  #all: unknown;
  #names: readonly string[] = [];
  /** How many names are not run now because the database refuses their outcomes. */
  #heldBack = 0;

  constructor(options: DefinedNamesOptions<W>) {
    this.#options = options;
  }

  /** True if names are held back that need not be any more. */
  get mayReturn(): boolean {
    return this.#options.crowded().size < this.#heldBack;
  }

  /** The next `apply` looks at every name again. */
  forget(): void {
    this.#all = undefined;
  }

  /** Applies the definitions, and hands back buffered work of other names. */
  apply(): readonly string[] {
    const { lanes, workers, crowded, release } = this.#options;
    const refused = crowded();
    const all = workers();
    if (all === this.#all && refused.size + this.#heldBack === 0) return this.#names;
    const run = new Map(
      [...all]
        .filter(([name]) => !refused.has(name))
        .map(([name, options]) => [name, this.#limited(name, options)]),
    );
    this.#heldBack = refused.size;
    lanes.define(run);
    release(lanes.drainUndefined());
    this.#all = all;
    this.#names = [...run.keys()];
    return this.#names;
  }

  #limited(name: string, options: LaneOptions): LaneOptions {
    const { mayTakeAhead, mostOfKey } = this.#options;
    const { batch } = options;
    return {
      ...options,
      ...(mayTakeAhead(name) ? {} : { ahead: false }),
      // A batch that cannot become larger need not wait.
      ...(batch?.byKey === true ? { batch: { ...batch, size: Math.min(batch.size, mostOfKey(name)) } } : {}),
    };
  }
}
