/** What a scrape shows, and the backlog that is recorded for the cluster. */
import { combinedVitals, MINUTE_MS, type Counts, type Shared, type Vitals } from '../store/metrics.js';
import type { Instance, Store } from '../store/port.js';
import { census, speaks, waitingOf, type CensusOptions } from './census.js';
import type { ClusterView, View } from './families.js';
import { limitUses } from './limits.js';
import type { MonitoringSettings } from './options.js';

interface ViewOptions extends CensusOptions {
  readonly settings: MonitoringSettings;
  /** Undefined if no instance runs in this process. */
  readonly self: () => Instance | undefined;
}

/** The most that one scrape counts over all names and statuses. */
const CAP = 100_000;
/** An instance that has missed this many pushes counts as gone. */
const MISSED = 3;

/** Reads the store only: no counter falls when another instance is scraped. */
export async function clusterView(store: Store, options: ViewOptions): Promise<View> {
  const [{ counts, shares }, cluster] = await Promise.all([store.metrics.read(), counted(store, options)]);
  const alive = shares.filter(({ ageMs, everyMs }) => ageMs <= MISSED * everyMs);
  const planner = lastPlanner(shares, alive);
  const { bounds } = options.settings;
  return { counts, shares: alive, cluster, bounds, ...(planner === undefined ? {} : { planner }) };
}

/** The metrics of one instance, and those of the cluster if it reports for it. */
export async function localView(
  store: Store,
  options: ViewOptions,
  own: Shared,
  counts: Counts,
): Promise<View> {
  const view = { counts, shares: [own], bounds: options.settings.bounds };
  const self = options.self();
  if (self === undefined || !speaks(await store.instances.list(), self)) return view;
  const planner = own.vitals.planner === undefined ? {} : { planner: own };
  return { ...view, ...planner, cluster: await counted(store, options) };
}

/** Saves the backlog of this minute. Returns false if another instance reports for the cluster. */
export async function saveBacklog(store: Store, self: Instance, options: ViewOptions): Promise<boolean> {
  const cluster = await store.instances.list();
  if (!speaks(cluster, self)) return false;
  const { readPreference } = options.settings;
  const view = await census(store, cluster, options, { cap: CAP, readPreference });
  const at = Math.floor(store.clock.now() / MINUTE_MS) * MINUTE_MS;
  await store.metrics.saveWaiting(new Date(at), waitingOf(view));
  return true;
}

/** The live instances of the cluster, its work up to a cap, and its limits. */
async function counted(store: Store, options: ViewOptions): Promise<ClusterView> {
  const { readPreference } = options.settings;
  const cluster = await store.instances.list();
  const [view, limits] = await Promise.all([
    census(store, cluster, options, { cap: CAP, readPreference }),
    store.limits?.read(),
  ]);
  return { ...view, limits: limitUses(limits?.scopes ?? [], view.depths) };
}

/**
 * Of the instances that report planner data, the one with the most recent push. If several of them are alive, each
 * plans a part, and the values are those of all.
 */
function lastPlanner(shares: readonly Shared[], alive: readonly Shared[]): Shared | undefined {
  const plans = ({ vitals }: { readonly vitals: Vitals }): boolean => vitals.planner !== undefined;
  const [last] = shares.filter(plans).sort((a, b) => a.ageMs - b.ageMs);
  const planner = combinedVitals(alive.filter(plans).flatMap(({ vitals }) => vitals.planner ?? []));
  return last && planner ? { ...last, vitals: { ...last.vitals, planner } } : last;
}
