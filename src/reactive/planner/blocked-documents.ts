import { pause, type Clock } from '../../core/clock.js';
import { StoreError } from '../../core/errors.js';
import type { HeldDocument, Poisoned, BlockedOfTask, TaskPlan } from '../../store/reactive/reactive.js';
import type { Troubles } from './troubles.js';

export interface BlockedDocumentsOptions {
  readonly clock: Clock;
  readonly stop: AbortSignal;
  /** Plans the documents again; those that are still blocked are added again. */
  readonly retry: (task: string, ids: readonly unknown[]) => Promise<void>;
  /** Records all blocked documents of one task. */
  readonly save: (documents: BlockedOfTask) => Promise<void>;
  readonly troubles: Troubles;
  readonly error: (error: unknown) => void;
}

const EVERY_MS = 1_000;
/** How many documents of one task may be blocked; beyond that the task is reconciled instead. */
const MOST = 10_000;

type Documents = ReadonlyMap<string, HeldDocument>;
const NONE: Documents = new Map();

/**
 * Documents whose tasks a user's open transaction holds. All of them are planned again once a second, so that no other
 * document waits for them. `keep` records them before the resume point moves past their changes: a successor continues
 * with them, and the resume point does not wait for the transaction.
 */
export class BlockedDocuments {
  readonly #options: BlockedDocumentsOptions;
  #waiting = new Map<string, Documents>();
  /** Documents that are being planned again. */
  #tried: ReadonlyMap<string, Documents> = new Map();
  /** What the store has on record, by task. */
  readonly #recorded = new Map<string, Documents>();
  /** Tasks that are reported as troubles. */
  #told: ReadonlySet<string> = new Set();
  #keeping: Promise<void> = Promise.resolve();
  #catchingUp: Promise<void> | undefined;

  constructor(options: BlockedDocumentsOptions) {
    this.#options = options;
  }

  get size(): number {
    const tasks = new Set([...this.#waiting.keys(), ...this.#tried.keys()]);
    return [...tasks].reduce((sum, task) => sum + this.#all(task).size, 0);
  }

  /** Takes over the blocked documents that an earlier leader recorded. */
  restore(recorded: readonly BlockedOfTask[]): void {
    for (const { task, documents } of recorded) {
      const known = byKey(documents);
      this.#recorded.set(task, known);
      if (known.size > 0) this.#waiting.set(task, new Map([...known, ...(this.#waiting.get(task) ?? NONE)]));
    }
    this.#start();
  }

  add({ task }: TaskPlan, choked: readonly Poisoned[]): void {
    const held = byKey(choked.filter(({ blocked }) => blocked));
    if (held.size === 0) return;
    const waiting = new Map([...(this.#waiting.get(task) ?? NONE), ...held]);
    if (waiting.size > MOST)
      throw new StoreError(
        `More than ${String(MOST)} documents of "${task}" wait for open transactions to end.`,
      );
    this.#waiting.set(task, waiting);
    this.#start();
  }

  /** Resolves when all blocked documents are on record. */
  keep(): Promise<void> {
    const unrecorded = (): string[] =>
      [...this.#waiting.keys(), ...this.#tried.keys()].filter((task) => {
        const recorded = this.#recorded.get(task) ?? NONE;
        return [...this.#all(task).keys()].some((key) => !recorded.has(key));
      });
    return this.#record(unrecorded);
  }

  /** Resolves when the retries and writes in progress have ended, after a stop. */
  async ended(): Promise<void> {
    await this.#catchingUp;
    await this.#keeping.catch(() => undefined);
  }

  #all(task: string): Documents {
    return new Map([...(this.#tried.get(task) ?? NONE), ...(this.#waiting.get(task) ?? NONE)]);
  }

  #start(): void {
    if (this.#waiting.size > 0) this.#catchingUp ??= this.#catchUp();
  }

  async #catchUp(): Promise<void> {
    const { clock, stop, error } = this.#options;
    this.#tell();
    while (this.#waiting.size > 0 && (await pause(clock, EVERY_MS, stop))) {
      await this.#round();
      this.#tell();
      // Remove planned documents from the record. Nothing depends on this, so errors are only reported.
      await this.#record(() => this.#settled()).catch(error);
    }
    this.#catchingUp = undefined;
    if (!stop.aborted) this.#start();
  }

  async #round(): Promise<void> {
    const { retry, error } = this.#options;
    const round = (this.#tried = this.#waiting);
    this.#waiting = new Map();
    for (const [task, documents] of round) {
      try {
        await retry(
          task,
          [...documents.values()].map(({ id }) => id),
        );
      } catch (problem) {
        error(problem);
        this.#waiting.set(task, new Map([...documents, ...(this.#waiting.get(task) ?? NONE)]));
      }
    }
    this.#tried = new Map();
  }

  /** Tasks with fewer blocked documents than are on record. */
  #settled(): readonly string[] {
    return [...this.#recorded]
      .filter(([task, documents]) => documents.size > this.#all(task).size)
      .map(([task]) => task);
  }

  /** Makes one write at a time: an older one must not come last. */
  #record(tasks: () => readonly string[]): Promise<void> {
    const keeping = this.#keeping
      .catch(() => undefined)
      .then(async () => {
        for (const task of new Set(tasks())) {
          const documents = this.#all(task);
          await this.#options.save({ task, documents: [...documents.values()] });
          this.#recorded.set(task, documents);
        }
      });
    this.#keeping = keeping;
    return keeping;
  }

  #tell(): void {
    const { troubles } = this.#options;
    for (const task of this.#told) if (!this.#waiting.has(task)) troubles.end(aboutOf(task));
    this.#told = new Set(this.#waiting.keys());
    for (const [task, { size }] of this.#waiting)
      troubles.begin(
        aboutOf(task),
        new Error(`${String(size)} cannot be planned: an open transaction holds their tasks`),
      );
  }
}

const aboutOf = (task: string): string => `documents of ${task}`;

const byKey = (documents: readonly HeldDocument[]): Documents =>
  new Map(documents.map(({ id, key }) => [key, { id, key }]));
