import { randomBytes } from 'node:crypto';
import type { Counts, MetricsStore, Vitals } from '../store/metrics.js';
import { growth, type Counters, type Minute } from './counters.js';

export interface MetricsPusherOptions {
  readonly counters: Counters;
  readonly instanceId: string;
  readonly everyMs: number;
  readonly vitals: () => Promise<Vitals>;
}

/** The most unsaved minutes that are kept. Older ones are dropped and missing in the series. */
const MOST_UNSAVED = 60;

/**
 * Pushes this process's counters to the store. If a push gets no response, the same growth is sent again with the same
 * number before anything newer, so the store counts it once whether or not the first push arrived.
 */
export class MetricsPusher {
  readonly #options: MetricsPusherOptions;
  readonly #id = randomBytes(16).toString('hex');
  /** The counts that the store has confirmed. */
  #told: Counts = new Map();
  #unanswered: { readonly growth: Counts; readonly counts: Counts } | undefined;
  #number = 0;
  #isKnown = false;
  #unsaved: readonly Minute[] = [];
  #turn: Promise<unknown> = Promise.resolve();

  constructor(options: MetricsPusherOptions) {
    this.#options = options;
  }

  get id(): string {
    return this.#id;
  }

  /** Pushes everything counted so far. Pushes and saves run one after another. */
  push(store: MetricsStore): Promise<void> {
    return this.#inTurn(async () => {
      if (this.#unanswered !== undefined) await this.#send(store, this.#unanswered);
      const counts = this.#options.counters.counts();
      await this.#send(store, { counts, growth: growth(counts, this.#told) });
    });
  }

  async save(store: MetricsStore): Promise<void> {
    await this.#inTurn(async () => {
      const minutes = [...this.#unsaved, ...this.#options.counters.takeMinutes()];
      // A minute may have grown since a failed save; its latest version is complete.
      const last = new Map(minutes.map((minute) => [minute.at.getTime(), minute]));
      this.#unsaved = [...last.values()].slice(-MOST_UNSAVED);
      if (this.#unsaved.length === 0) return;
      await store.saveMinutes(this.#id, this.#unsaved);
      this.#unsaved = [];
    });
  }

  /** Saves and pushes what is left, and removes this instance from the store. */
  async end(store: MetricsStore, pushes: boolean): Promise<void> {
    await this.save(store);
    if (!pushes) return;
    const isNews = growth(this.#options.counters.counts(), this.#told).size > 0;
    if (isNews) await this.push(store);
    if (this.#isKnown) await store.leave(this.#id);
    this.#isKnown = false;
  }

  async #send(
    store: MetricsStore,
    what: { readonly growth: Counts; readonly counts: Counts },
  ): Promise<void> {
    const { instanceId, everyMs, vitals } = this.#options;
    if (this.#unanswered !== what) this.#number += 1;
    this.#unanswered = what;
    this.#isKnown = true;
    await store.push({
      id: this.#id,
      number: this.#number,
      instanceId,
      everyMs,
      growth: what.growth,
      vitals: await vitals(),
    });
    this.#told = what.counts;
    this.#unanswered = undefined;
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const turn = this.#turn.then(work, work);
    this.#turn = turn.catch(() => undefined);
    return turn;
  }
}
