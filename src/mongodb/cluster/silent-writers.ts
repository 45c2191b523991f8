/** How long an instance follows the change stream after it has met work of a process that sends no messages. */
const SILENT_MS = 600_000;

/**
 * Notices processes that send no messages: those of earlier versions, and those that may not write to the collection. The
 * flag on the due jobs that they enqueue tells.
 */
export class SilentWriters {
  #heardAt = -Infinity;
  readonly #listeners = new Set<() => void>();

  get isRecent(): boolean {
    return performance.now() - this.#heardAt < SILENT_MS;
  }

  heard(): void {
    this.#heardAt = performance.now();
    for (const listener of this.#listeners) listener();
  }

  onHeard(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}

/** What `wake` says on an inserted job of any name. Every version listens to either. */
const SILENT = 1;
const ANNOUNCED = 2;

/** What is stored as `wake`: how many due jobs of its name were stored with it, or 0 for jobs of any name. */
export const wakeFlag = (due: number, sends: boolean): unknown =>
  due === 0 ? (sends ? ANNOUNCED : SILENT) : { due, sent: sends };

export const dueOf = (wake: unknown): number | undefined => {
  const { due } = (wake ?? {}) as { readonly due?: unknown };
  return typeof due === 'number' ? due : undefined;
};

/** True if the process that stored the job sends no messages. */
export const isSilent = (wake: unknown): boolean =>
  wake === SILENT || (dueOf(wake) !== undefined && (wake as { readonly sent?: unknown }).sent !== true);
