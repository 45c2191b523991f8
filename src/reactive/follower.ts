import { pause, type Clock } from '../core/clock.js';
import { HistoryLostError, type Feed, type FeedEvent, type PlanStore } from '../store/reactive.js';

export interface FollowerOptions {
  readonly store: Pick<PlanStore, 'openFeed'>;
  readonly clock: Clock;
  /** Undefined: the store's own. */
  readonly database: string | undefined;
  readonly collections: readonly string[];
  readonly token: unknown;
  /** Plans what a batch says; resolves only when that has succeeded. */
  readonly plan: (events: readonly FeedEvent[]) => Promise<void>;
  /** From here on, or from an earlier point, planning goes on after a crash. */
  readonly reached: (token: unknown) => Promise<void>;
  /** Changes were missed; the feed has been opened anew, from now. */
  readonly historyLost: (error: Error) => Promise<void>;
  readonly error: (error: unknown) => void;
}

const BATCH = 1_000;
/** Events that wait for their batch; a feed that brings more is not read on. */
const MOST_WAITING = 5_000;
const FIRST_WAIT_MS = 100;
const LONGEST_WAIT_MS = 5_000;
/** While nothing happens the resume point is kept fresh, so that the history does not run away from it. */
const KEEP_TOKEN_MS = 60_000;

/**
 * Follows the changes of one database. The first change of a quiet spell is planned at once; what comes while a batch
 * is being planned is gathered for the next one. The resume point moves only after its batch has succeeded.
 */
export class Follower {
  readonly #options: FollowerOptions;
  readonly #stop = new AbortController();
  #feed: Feed | undefined;
  #queue: FeedEvent[] = [];
  #arrived: (() => void) | undefined;
  #drained: (() => void) | undefined;
  #broken: { readonly error: unknown } | undefined;
  #token: unknown;
  #following: Promise<void> = Promise.resolve();
  /** When the newest planned change was made. */
  lastEventAt: Date | undefined;

  #isOver(): boolean {
    return this.#stop.signal.aborted;
  }

  constructor(options: FollowerOptions) {
    this.#options = options;
    this.#token = options.token;
  }

  get token(): unknown {
    return this.#token;
  }

  /** Resolves when the feed is open: from then on no change is missed. */
  async start(): Promise<void> {
    await this.#open();
    this.#following = this.#follow();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    this.#arrived?.();
    this.#drained?.();
    await this.#feed?.close();
    await this.#following;
  }

  async #open(): Promise<void> {
    for (let waitMs = FIRST_WAIT_MS; !this.#isOver(); waitMs = Math.min(waitMs * 2, LONGEST_WAIT_MS)) {
      try {
        await this.#openOnce();
        return;
      } catch (error) {
        this.#options.error(error);
        await pause(this.#options.clock, waitMs, this.#stop.signal);
      }
    }
  }

  async #openOnce(): Promise<void> {
    const { store, database, collections, historyLost, reached } = this.#options;
    try {
      this.#feed = await store.openFeed(database, collections, this.#token);
    } catch (error) {
      if (!(error instanceof HistoryLostError)) throw error;
      // The dead point is given up at once, and everything is looked at again from a new one on.
      this.#feed = await store.openFeed(database, collections, undefined);
      this.#token = undefined;
      await historyLost(error);
    }
    if (this.#token === undefined) {
      this.#token = this.#feed.token;
      await reached(this.#token);
    }
    this.#broken = undefined;
    void this.#pump(this.#feed);
  }

  async #pump(feed: Feed): Promise<void> {
    try {
      while (!this.#isOver() && feed === this.#feed) {
        const event = await feed.next();
        this.#queue.push(event);
        this.#arrived?.();
        if (this.#queue.length >= MOST_WAITING)
          await new Promise<void>((resolve) => (this.#drained = resolve));
      }
    } catch (error) {
      if (feed !== this.#feed) return;
      this.#broken = { error };
      this.#arrived?.();
    }
  }

  async #follow(): Promise<void> {
    while (!this.#isOver()) {
      const events = await this.#next();
      if (this.#isOver()) return;
      if (events.length > 0) await this.#planned(events);
      else if (this.#broken !== undefined) await this.#reopen(this.#broken.error);
      else await this.#keepToken();
    }
  }

  /** The next batch; empty where the feed broke, or nothing came for a while. */
  async #next(): Promise<readonly FeedEvent[]> {
    if (this.#queue.length === 0 && this.#broken === undefined) {
      const arrival = new AbortController();
      this.#arrived = () => arrival.abort();
      await pause(this.#options.clock, KEEP_TOKEN_MS, arrival.signal);
      this.#arrived = undefined;
    }
    const events = this.#queue.splice(0, BATCH);
    this.#drained?.();
    return events;
  }

  async #planned(events: readonly FeedEvent[]): Promise<void> {
    const { plan, reached, clock, error } = this.#options;
    const last = events.at(-1);
    for (let waitMs = FIRST_WAIT_MS; !this.#isOver(); waitMs = Math.min(waitMs * 2, LONGEST_WAIT_MS)) {
      try {
        await plan(events);
        this.#token = last?.token;
        if (last?.kind === 'change') this.lastEventAt = last.at;
        await reached(this.#token);
        return;
      } catch (problem) {
        // A step-down is enough for that: the batch is kept, and tried again.
        error(problem);
        await pause(clock, waitMs, this.#stop.signal);
      }
    }
  }

  async #reopen(problem: unknown): Promise<void> {
    const feed = this.#feed;
    this.#feed = undefined;
    this.#broken = undefined;
    await feed?.close();
    if (!(problem instanceof HistoryLostError)) this.#options.error(problem);
    await this.#open();
  }

  async #keepToken(): Promise<void> {
    const token = this.#feed?.token;
    if (this.#queue.length > 0 || token === undefined || token === this.#token) return;
    this.#token = token;
    await this.#options.reached(token).catch(this.#options.error);
  }
}
