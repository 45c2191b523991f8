import { randomBytes } from 'node:crypto';
import type { Counts, MetricsStore, Vitals } from '../store/metrics.js';
import { growth, type Counters, type Minute } from './counters.js';

export interface MetricsPusherOptions {
  readonly counters: Counters;
  readonly instanceId: string;
  readonly everyMs: number;
  readonly vitals: () => Promise<Vitals>;
}

/** Minutes that could not be saved are kept this long; after that, there are holes. */
const MOST_UNSAVED = 60;

/**
 * Tells the store what was counted here. What was sent and not answered is sent again as it was, under its number, before
 * anything newer: so it is counted once, whether it had arrived or not.
 */
export class MetricsPusher {
  readonly #options: MetricsPusherOptions;
  readonly #id = randomBytes(16).toString('hex');
  /** What the store knows of. */
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

  /** Everything that was counted until now; one after the other. */
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
      // A minute may have gone on since it could not be saved: what was said last is the whole of it.
      const last = new Map(minutes.map((minute) => [minute.at.getTime(), minute]));
      this.#unsaved = [...last.values()].slice(-MOST_UNSAVED);
      if (this.#unsaved.length === 0) return;
      await store.saveMinutes(this.#id, this.#unsaved);
      this.#unsaved = [];
    });
  }

  /** The last words: what is left to be told, and goodbye. */
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
