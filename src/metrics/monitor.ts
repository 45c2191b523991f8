import { within, type Clock, type Timer } from '../core/clock.js';
import { reasonOf } from '../core/errors.js';
import { lazily, type Lazy } from '../core/lazily.js';
import type { Logger } from '../core/logger.js';
import { noMeter, type Meter } from '../core/meter.js';
import { MINUTE_MS, type Shared, type Vitals } from '../store/metrics.js';
import type { Instance, Store } from '../store/port.js';
import type { CensusOptions } from './census.js';
import { Counters } from './counters.js';
import type { MonitoringSettings } from './options.js';
import { Prometheus, type PrometheusRegistry } from './prometheus.js';
import { MetricsPusher } from './metrics-pusher.js';
import type * as views from './views.js';

export interface MonitorOptions extends CensusOptions {
  readonly settings: MonitoringSettings;
  readonly instanceId: string;
  /** Opens the store if it is closed. */
  readonly store: () => Promise<Store>;
  readonly vitals: () => Promise<Vitals>;
  /** Undefined if no instance runs in this process. */
  readonly self: () => Instance | undefined;
  readonly log: Logger;
}

/** What only a scrape needs. */
const loadFamilies = lazily(() => import('./families.js'));
/** What scrapes and the record of the backlog need. */
export const loadViews: Lazy<typeof views> = lazily(() => import('./views.js'));
/** The longest delay until activity appears in the time series. */
const SAVE_MS = 5_000;
/** Outdated instances and counts are deleted every this many records of the backlog: about once an hour. */
const FORGET_EVERY = 60;
/** How long a stop waits for the last push. */
const END_MS = 5_000;

/**
 * The metrics of one instance. Duties:
 * - keep the counters;
 * - save the time series to the store, 5 s after something happened, and push the counters' growth every
 *   `pushIntervalMs`;
 * - record the backlog once a minute, if this instance reports for the cluster;
 * - answer scrapes.
 * Errors are logged and affect nothing else.
 */
export class Monitor {
  readonly meter: Meter;
  readonly #options: MonitorOptions;
  readonly #pusher: MetricsPusher;
  readonly #counters: Counters;
  readonly #prometheus: Prometheus;
  #open: Store | undefined;
  #isWorking = false;
  #saving: Timer | undefined;
  #pushing: Timer | undefined;
  #looking: Timer | undefined;
  #looks = 0;
  #isTroubled = false;

  constructor(options: MonitorOptions) {
    this.#options = options;
    const { settings, instanceId, vitals, log } = options;
    this.#counters = new Counters(settings.bounds, () => this.#stirred());
    this.meter = settings.enabled ? this.#counters : noMeter;
    this.#pusher = new MetricsPusher({
      counters: this.#counters,
      instanceId,
      everyMs: settings.pushMs,
      vitals,
    });
    this.#prometheus = new Prometheus(log);
  }

  get #pushes(): boolean {
    return this.#options.settings.scrapeMode === 'cluster';
  }

  /** The store is open: metrics can be saved and pushed from now on. */
  opened(store: Store): void {
    if (this.#options.settings.enabled) this.#open = store;
  }

  /** An instance runs from now on: it pushes even if nothing happens, and may report for the cluster. */
  start(): void {
    if (this.#open === undefined) return;
    this.#isWorking = true;
    this.#stirred();
    this.#armLook(this.#open);
  }

  /** Saves and pushes what is left. Call it before the store is closed. */
  async stop(): Promise<void> {
    const store = this.#open;
    this.#isWorking = false;
    for (const timer of [this.#saving, this.#pushing, this.#looking]) timer?.cancel();
    this.#saving = this.#pushing = this.#looking = undefined;
    this.#open = undefined;
    if (store === undefined) return;
    await within(
      store.clock,
      END_MS,
      this.#try(() => this.#pusher.end(store.metrics, this.#pushes)),
    );
  }

  /** Returns null if monitoring is disabled or prom-client is not installed. */
  async scrape(): Promise<PrometheusRegistry | null> {
    if (!this.#options.settings.enabled) return null;
    const client = await this.#prometheus.client();
    if (client === null) return null;
    const [{ families }, { clusterView, localView }] = await Promise.all([loadFamilies(), loadViews()]);
    const store = await this.#options.store();
    let view;
    if (this.#pushes) {
      await this.#pusher.push(store.metrics);
      view = await clusterView(store, this.#options);
    } else view = await localView(store, this.#options, await this.#own(), this.#counters.counts());
    return client.AggregatorRegistry.aggregate([families(view)]);
  }

  /** What this instance would push. */
  async #own(): Promise<Shared> {
    const { settings, instanceId, vitals } = this.#options;
    return { id: this.#pusher.id, instanceId, everyMs: settings.pushMs, vitals: await vitals(), ageMs: 0 };
  }

  #stirred(): void {
    const store = this.#open;
    if (store === undefined) return;
    this.#saving ??= timer(store.clock, SAVE_MS, () => {
      this.#saving = undefined;
      this.#run(store, () => this.#pusher.save(store.metrics));
    });
    this.#armPush();
  }

  #armPush(): void {
    const store = this.#open;
    if (store === undefined || !this.#pushes) return;
    this.#pushing ??= timer(store.clock, this.#options.settings.pushMs, () => {
      this.#pushing = undefined;
      this.#run(store, () => this.#pusher.push(store.metrics));
      // A running instance also pushes when nothing happens, to show that it is alive.
      if (this.#isWorking) this.#armPush();
    });
  }

  #armLook(store: Store): void {
    this.#looking = timer(store.clock, MINUTE_MS, () => {
      this.#run(store, () => this.#look(store));
      this.#armLook(store);
    });
  }

  /** Records the backlog, on one instance of the cluster. If two instances do so, the second overwrites the first. */
  async #look(store: Store): Promise<void> {
    const self = this.#options.self();
    if (self === undefined) return;
    const { saveBacklog } = await loadViews();
    if (!(await saveBacklog(store, self, this.#options))) return;
    this.#looks += 1;
    if (this.#looks % FORGET_EVERY === 1) await store.metrics.forget();
  }

  #run(store: Store, work: () => Promise<void>): void {
    const running = this.#try(work);
    store.clock.track?.(running);
  }

  async #try(work: () => Promise<void>): Promise<void> {
    try {
      await work();
      this.#isTroubled = false;
    } catch (error) {
      if (!this.#isTroubled)
        this.#options.log.warn({ error }, `metrics could not be stored: ${reasonOf(error)}`);
      this.#isTroubled = true;
    }
  }
}

/** Timers for metrics never keep the process alive. */
function timer(clock: Clock, delayMs: number, callback: () => void): Timer {
  const armed = clock.timer(delayMs, callback, { housekeeping: true });
  armed.unref?.();
  return armed;
}
