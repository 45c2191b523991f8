import { lazily } from '../../core/lazily.js';
import type { JobFilter, Store } from '../../store/port.js';
import type { JobChange } from './change.js';
import type { ChangeChannel } from './channel.js';

const loadChanges = lazily(() => import('./changes-of.js'));

/** What `jobs.watch` returns. Leaving the loop, or `return()`, closes it. */
export type JobWatch = AsyncIterableIterator<JobChange> & AsyncDisposable;

/** What to watch: one job by its id, or all that match. */
export type Watched = { readonly id: string } | { readonly filter: JobFilter };

/** The watches of one mill. They end with it. */
export class WatchRegistry {
  readonly #store: () => Promise<Store>;
  readonly #ends = new Set<AbortController>();
  readonly #channels = new Set<ChangeChannel>();

  constructor(store: () => Promise<Store>) {
    this.#store = store;
  }

  /** Begins with the first `next`; what happened since this call is told. */
  watch(watched: () => Watched | Promise<Watched>, signal?: AbortSignal): JobWatch {
    const calledAt = performance.now();
    const end = new AbortController();
    // Anything else is refused by the check of the target.
    const stop = signal instanceof AbortSignal ? AbortSignal.any([signal, end.signal]) : end.signal;
    const changes = this.#changes(watched, calledAt, end, stop);
    const close = async (): Promise<IteratorResult<JobChange>> => {
      end.abort();
      await changes.return();
      return { done: true, value: undefined };
    };
    return {
      next: () => changes.next(),
      return: close,
      [Symbol.asyncIterator]() {
        return this;
      },
      [Symbol.asyncDispose]: async () => {
        await close();
      },
    };
  }

  /** Ends all watches, and resolves when all that they opened is closed. */
  async stop(): Promise<void> {
    for (const end of this.#ends) end.abort();
    await Promise.all([...this.#channels].map((channel) => channel.close()));
  }

  async *#changes(
    watched: () => Watched | Promise<Watched>,
    calledAt: number,
    end: AbortController,
    stop: AbortSignal,
  ): AsyncGenerator<JobChange, void, void> {
    const isOver = (): boolean => stop.aborted;
    if (isOver()) return;
    this.#ends.add(end);
    try {
      const target = await watched();
      const { ofJob, ofMany } = await loadChanges();
      const store = await this.#store();
      const { clock } = store;
      // Stored times have whole milliseconds, so the call counts from the beginning of its own.
      const since = Math.floor(clock.now() - (performance.now() - calledAt) - (clock.uncertainty?.() ?? 0));
      const watching = { store, since, stop, open: this.#channels };
      yield* 'id' in target ? ofJob(target.id, watching) : ofMany(target.filter, watching);
    } catch (error) {
      // A store that closes under a watch that was ended says so.
      if (!isOver()) throw error;
    } finally {
      this.#ends.delete(end);
    }
  }
}
