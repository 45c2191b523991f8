import { Backoff } from '../../core/backoff.js';
import { Wake, type Reason } from '../../engine/claim/wake.js';
import type { ChangeHandlers } from '../../store/jobs/changes.js';
import type { JobFilter, Store, Watch } from '../../store/port.js';

/** How long to wait between reads: if the store tells of changes, and if it does not. */
const HEARD_MS = { min: 1_000, max: 10_000 };
const UNHEARD_MS = { min: 50, max: 1_000, factor: 1.5 };
/** How long a channel that could not be opened, or broke, is left alone. */
const REOPEN_MS = { min: 500, max: 30_000 };

export interface ChannelOptions {
  readonly store: Store;
  readonly filter: Pick<JobFilter, 'ids' | 'name'>;
  readonly stop: AbortSignal;
  /** Called for each change that the store tells; without ids, anything may have changed. */
  readonly changed: (ids?: readonly string[]) => void;
  /** The channels that are not closed yet. */
  readonly open: Set<ChangeChannel>;
}

/** Waits for changes: for the channel of the store, and a growing poll beside it, or instead if there is none. */
export class ChangeChannel {
  readonly #options: ChannelOptions;
  readonly #wake: Wake;
  readonly #delay: Backoff;
  readonly #reopen = new Backoff(REOPEN_MS);
  #channel: Watch | undefined;
  #reopenAt = -Infinity;
  #isClosed = false;

  constructor(options: ChannelOptions) {
    this.#options = options;
    this.#wake = new Wake(options.store.clock);
    this.#delay = new Backoff(() => (this.#channel === undefined ? UNHEARD_MS : HEARD_MS));
    options.open.add(this);
    // The consumer may never ask again.
    options.stop.addEventListener('abort', () => void this.close(), { once: true });
  }

  /** Opens the channel, unless it is open or has just failed. Never rejects: without it, `wait` polls. */
  async open(): Promise<void> {
    const { clock, jobs } = this.#options.store;
    if (
      jobs.changes === undefined ||
      this.#channel !== undefined ||
      this.#isClosed ||
      clock.monotonic() < this.#reopenAt
    )
      return;
    this.#reopenAt = clock.monotonic() + this.#reopen.next();
    const broken = new AbortController();
    const ring = (ids?: readonly string[]): void => {
      this.#options.changed(ids);
      this.#wake.notify();
    };
    const channel = await this.#channelOf({
      changed: ring,
      broken: () => {
        broken.abort();
        this.#channel = undefined;
        ring();
      },
    });
    if (channel === undefined) return;
    if (broken.signal.aborted || this.#isOver) return channel.close();
    this.#channel = channel;
    this.#reopen.reset();
    // What changed before it was open was not told.
    ring();
  }

  /** It may have been closed while the channel was being opened. */
  get #isOver(): boolean {
    return this.#isClosed;
  }

  async #channelOf(handlers: ChangeHandlers): Promise<Watch | undefined> {
    const { store, filter } = this.#options;
    try {
      const channel = await store.jobs.changes?.watch(filter, handlers);
      return channel === undefined || 'unavailable' in channel ? undefined : channel;
    } catch {
      return undefined;
    }
  }

  /** A change was found: the next poll comes soon. */
  found(): void {
    this.#delay.reset();
  }

  /** Waits for a change, the poll or the stop. */
  wait(): Promise<Reason> {
    const { store, stop } = this.#options;
    const hearsAll = this.#channel !== undefined && store.jobs.changes?.hears === 'all';
    return this.#wake.wait(hearsAll ? Infinity : this.#delay.next(), stop);
  }

  /** Repeat: no effect. */
  async close(): Promise<void> {
    this.#isClosed = true;
    const channel = this.#channel;
    this.#channel = undefined;
    await channel?.close().catch(() => undefined);
    this.#options.open.delete(this);
  }
}
