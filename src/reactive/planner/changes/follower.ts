import { Backoff } from '../../../core/backoff.js';
import { pause, type Clock } from '../../../core/clock.js';
import {
  HistoryLostError,
  type Feed,
  type FeedEvent,
  type FeedRequest,
  type PlanStore,
} from '../../../store/reactive/reactive.js';
import { RETRY_MS } from '../backoffs.js';

export interface FollowerOptions extends FeedRequest {
  readonly store: Pick<PlanStore, 'openFeed'>;
  readonly clock: Clock;
  /** Plans a batch of events; resolves only when that has succeeded. */
  readonly plan: (events: readonly FeedEvent[]) => Promise<void>;
  /** Stores the resume point: after a crash, planning continues from here or from an earlier point. */
  readonly reached: (token: unknown) => Promise<void>;
  /** Called when changes were missed and the feed has been opened again, from now on. */
  readonly historyLost: (error: Error) => Promise<void>;
  /** Called when the feed is open after earlier attempts to open it failed. */
  readonly opened: () => void;
  readonly error: (error: unknown) => void;
}

/**
 * How many events may wait for the next batch, which takes all of them; at this many the feed is not read on. The
 * events of a burst usually concern few documents.
 */
const MOST_WAITING = 5_000;
/** While nothing happens the resume point is renewed this often, so that it does not fall out of the history. */
const KEEP_TOKEN_MS = 60_000;

/**
 * Follows the changes of one database. The first change after a quiet period is planned at once; those that arrive
 * while a batch is being planned form the next one. The resume point moves only after its batch has succeeded.
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
  /** Changes were missed, and `historyLost` was not called yet. */
  #lost: HistoryLostError | undefined;
  #hasBrought = false;
  /** The feed broke and has not delivered an event since. */
  #hasBroken = false;
  readonly #reopenAfter = new Backoff(RETRY_MS);
  #following: Promise<void> = Promise.resolve();
  /** The events that are being planned. */
  #batch: readonly FeedEvent[] = [];
  /** The time of the resume point. */
  #resumeAt: number | undefined;
  /** Since when no feed is open. */
  #deafSince: number | undefined;

  #isOver(): boolean {
    return this.#stop.signal.aborted;
  }

  constructor(options: FollowerOptions) {
    this.#options = options;
    this.#token = options.token;
    this.#deafSince = options.clock.now();
  }

  get collections(): readonly string[] {
    return this.#options.collections;
  }

  /** True while the feed is open, so that no change is missed. */
  get isOpen(): boolean {
    return this.#feed !== undefined;
  }

  /** How long the oldest change that is not planned yet has waited; without one, how long the feed has been closed. */
  get lagMs(): number {
    const now = this.#options.clock.now();
    const first = this.#batch.find(isChange) ?? this.#queue.find(isChange);
    return Math.max(0, now - (first?.at.getTime() ?? this.#deafSince ?? now));
  }

  /** The time up to which everything is planned, as far as a successor knows. */
  get resumeAt(): number | undefined {
    return this.#resumeAt;
  }

  /**
   * Resolves when the feed is open or the first attempt to open it has failed. Further attempts do not hold up the
   * caller.
   */
  async start(): Promise<void> {
    const open = await this.#tryToOpen();
    this.#following = open ? this.#follow() : this.#open().then(() => this.#follow());
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    this.#arrived?.();
    this.#drained?.();
    await this.#feed?.close();
    await this.#following;
  }

  async #open(): Promise<void> {
    for (const retry = new Backoff(RETRY_MS); !this.#isOver();) {
      if (await this.#tryToOpen()) {
        this.#options.opened();
        return;
      }
      await pause(this.#options.clock, retry.next(), this.#stop.signal);
    }
  }

  async #tryToOpen(): Promise<boolean> {
    try {
      await this.#openOnce();
      return true;
    } catch (error) {
      this.#options.error(error);
      return false;
    }
  }

  async #openOnce(): Promise<void> {
    const feed = await this.#openFeed();
    try {
      await this.#begin(feed);
    } catch (error) {
      await feed.close();
      throw error;
    }
    this.#feed = feed;
    this.#broken = undefined;
    this.#deafSince = undefined;
    // Stopped meanwhile: nothing else would close this feed.
    if (this.#isOver()) await feed.close();
    else void this.#pump(feed);
  }

  async #openFeed(): Promise<Feed> {
    const { store, database, collections, term, since = [] } = this.#options;
    const request = { database, collections, term };
    try {
      return await store.openFeed({
        ...request,
        token: this.#token,
        // Once the feed has delivered an event, the resume point is what counts.
        since: this.#hasBrought ? [] : since,
      });
    } catch (error) {
      if (!(error instanceof HistoryLostError)) throw error;
      // Give up the dead resume point at once. Everything is reconciled, and a new point is used from here on.
      this.#lost = error;
      this.#token = undefined;
      return store.openFeed({ ...request, token: undefined });
    }
  }

  /**
   * Stores the new resume point only after the reconciliation has been requested: after a crash in between, the next
   * leader meets the dead one again.
   */
  async #begin(feed: Feed): Promise<void> {
    const { historyLost, reached } = this.#options;
    if (this.#lost !== undefined) await historyLost(this.#lost);
    this.#lost = undefined;
    if (this.#token !== undefined) return;
    const { token } = feed;
    // The feed began in the past, and has not reached an event yet.
    if (token === undefined) return;
    await reached(token);
    this.#resumeAt = this.#options.clock.now();
    this.#token = token;
  }

  async #pump(feed: Feed): Promise<void> {
    try {
      while (!this.#isOver() && feed === this.#feed) {
        const event = await feed.next();
        this.#hasBroken = false;
        this.#reopenAfter.reset();
        this.#hasBrought = true;
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
      this.#batch = events;
      if (events.length > 0) await this.#planned(events);
      else if (this.#broken !== undefined) await this.#reopen(this.#broken.error);
      else await this.#keepToken();
    }
  }

  /** Returns the next batch; empty if the feed broke, or if nothing arrived for a minute. */
  async #next(): Promise<readonly FeedEvent[]> {
    if (this.#queue.length === 0 && this.#broken === undefined) {
      const arrival = new AbortController();
      this.#arrived = () => arrival.abort();
      await pause(this.#options.clock, KEEP_TOKEN_MS, arrival.signal, { housekeeping: true });
      this.#arrived = undefined;
    }
    const events = this.#queue.splice(0, MOST_WAITING);
    this.#drained?.();
    return events;
  }

  async #planned(events: readonly FeedEvent[]): Promise<void> {
    const { plan, reached, clock, error } = this.#options;
    const last = events.at(-1);
    for (const retry = new Backoff(RETRY_MS); !this.#isOver();) {
      try {
        await plan(events);
        this.#token = last?.token;
        await reached(this.#token);
        this.#resumeAt = events.findLast(isChange)?.at.getTime() ?? this.#resumeAt;
        this.#batch = [];
        return;
      } catch (problem) {
        // Keep the batch and try again: a step-down of the primary is enough to fail here.
        error(problem);
        await pause(clock, retry.next(), this.#stop.signal);
      }
    }
  }

  async #reopen(problem: unknown): Promise<void> {
    const feed = this.#feed;
    this.#feed = undefined;
    this.#broken = undefined;
    this.#deafSince = this.#options.clock.now();
    await feed?.close();
    if (problem instanceof HistoryLostError) {
      // A server may accept a dead resume point and notice only when it reads the changes after it.
      this.#lost = problem;
      this.#token = undefined;
    } else {
      this.#options.error(problem);
      await this.#rest();
    }
    await this.#open();
  }

  /** Delays the reopening of a feed that keeps breaking before it has delivered anything. */
  async #rest(): Promise<void> {
    if (this.#hasBroken) await pause(this.#options.clock, this.#reopenAfter.next(), this.#stop.signal);
    this.#hasBroken = true;
  }

  async #keepToken(): Promise<void> {
    const token = this.#feed?.token;
    if (this.#queue.length > 0 || token === undefined || token === this.#token) return;
    this.#token = token;
    this.#resumeAt = this.#options.clock.now();
    await this.#options.reached(token).catch(this.#options.error);
  }
}

const isChange = (event: FeedEvent): event is Extract<FeedEvent, { readonly kind: 'change' }> =>
  event.kind === 'change';
