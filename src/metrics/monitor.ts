import { within, type Clock, type Timer } from '../core/clock.js';
import { reasonOf } from '../core/errors.js';
import type { Logger } from '../core/logger.js';
import { noMeter, type Meter } from '../core/meter.js';
import { MINUTE_MS, type Shared, type Vitals } from '../store/metrics.js';
import type { Instance, Store } from '../store/port.js';
import { census, speaks, waitingOf, type CensusOptions } from './census.js';
import { families, type View } from './families.js';
import { Counters } from './counters.js';
import type { MonitoringSettings } from './options.js';
import { Prometheus, type PrometheusRegistry } from './prometheus.js';
import { MetricsPusher } from './metrics-pusher.js';

export interface MonitorOptions extends CensusOptions {
  readonly settings: MonitoringSettings;
  readonly instanceId: string;
  /** Opens it where it is closed. */
  readonly store: () => Promise<Store>;
  readonly vitals: () => Promise<Vitals>;
  /** Undefined where no instance runs in this process. */
  readonly self: () => Instance | undefined;
  readonly log: Logger;
}

/** Counted over all names and statuses by one scrape. */
const CAP = 100_000;
/** What happened is in the time series this much later at the latest. */
const SAVE_MS = 5_000;
const FORGET_EVERY = 60;
/** An instance that has missed this many of its shares is gone. */
const MISSED = 3;
/** How long a stop waits for the last words. */
const END_MS = 5_000;

/**
 * What is measured on one instance, and who hears of it. Duties: keep the ledger; tell the store, every few seconds what
 * the minutes brought and every `pushIntervalMs` how the counts have grown; look once a minute what waits, where this
 * instance speaks for the cluster; answer scrapes. Its own trouble is logged, and harms nothing.
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

  /** The store is open: what happens from now on can be told. */
  opened(store: Store): void {
    if (this.#options.settings.enabled) this.#open = store;
  }

  /** An instance runs from now on: it tells that it lives, and may speak for the cluster. */
  start(): void {
    if (this.#open === undefined) return;
    this.#isWorking = true;
    this.#stirred();
    this.#armLook(this.#open);
  }

  /** Tells what is left; before the store is closed. */
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

  /** Null where nothing is measured, or prom-client is missing. */
  async scrape(): Promise<PrometheusRegistry | null> {
    if (!this.#options.settings.enabled) return null;
    const client = await this.#prometheus.client();
    if (client === null) return null;
    const store = await this.#options.store();
    const view = this.#pushes ? await this.#clusterView(store) : await this.#localView(store);
    return client.AggregatorRegistry.aggregate([families(view)]);
  }

  /** Only from what the store knows, own counts included: whoever answers next must not know less. */
  async #clusterView(store: Store): Promise<View> {
    await this.#pusher.push(store.metrics);
    const [{ counts, shares }, cluster] = await Promise.all([store.metrics.read(), this.#census(store)]);
    const alive = shares.filter(({ ageMs, everyMs }) => ageMs <= MISSED * everyMs);
    const planner = lastPlanner(shares);
    const { bounds } = this.#options.settings;
    return { counts, shares: alive, cluster, bounds, ...(planner === undefined ? {} : { planner }) };
  }

  async #localView(store: Store): Promise<View> {
    const { settings, instanceId, vitals, self } = this.#options;
    const own: Shared = {
      id: this.#pusher.id,
      instanceId,
      everyMs: settings.pushMs,
      vitals: await vitals(),
      ageMs: 0,
    };
    const view = { counts: this.#counters.counts(), shares: [own], bounds: settings.bounds };
    const instance = self();
    if (instance === undefined || !speaks(await store.instances.list(), instance)) return view;
    const planner = own.vitals.planner === undefined ? {} : { planner: own };
    return { ...view, ...planner, cluster: await this.#census(store) };
  }

  async #census(store: Store): Promise<NonNullable<View['cluster']>> {
    const { readPreference } = this.#options.settings;
    return census(store, await store.instances.list(), this.#options, { cap: CAP, readPreference });
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
      // While it works, an instance says that it lives, also where nothing happens.
      if (this.#isWorking) this.#armPush();
    });
  }

  #armLook(store: Store): void {
    this.#looking = timer(store.clock, MINUTE_MS, () => {
      this.#run(store, () => this.#look(store));
      this.#armLook(store);
    });
  }

  /** What waits is looked up once in the cluster; where two think that it is their turn, one of them is overwritten. */
  async #look(store: Store): Promise<void> {
    const self = this.#options.self();
    const cluster = await store.instances.list();
    if (self === undefined || !speaks(cluster, self)) return;
    const { readPreference } = this.#options.settings;
    const view = await census(store, cluster, this.#options, { cap: CAP, readPreference });
    const at = Math.floor(store.clock.now() / MINUTE_MS) * MINUTE_MS;
    await store.metrics.saveWaiting(new Date(at), waitingOf(view));
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
        this.#options.log.warn({ error }, `what was measured could not be stored: ${reasonOf(error)}`);
      this.#isTroubled = true;
    }
  }
}

/** Nothing that is measured keeps a process alive. */
function timer(clock: Clock, delayMs: number, callback: () => void): Timer {
  const armed = clock.timer(delayMs, callback);
  armed.unref?.();
  return armed;
}

/** Of those who say that they plan, the one that was heard last. */
const lastPlanner = (shares: readonly Shared[]): Shared | undefined =>
  shares
    .filter(({ vitals }) => vitals.planner !== undefined)
    .reduce<Shared | undefined>(
      (last, one) => (last === undefined || one.ageMs < last.ageMs ? one : last),
      undefined,
    );
