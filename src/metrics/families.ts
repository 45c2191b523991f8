/** Converts a view of the metrics to the JSON form that prom-client aggregates. Pure. */
import { ENDS, type HeldUpBy } from '../core/meter.js';
import type { Counts, MeasuredKind, Shared } from '../store/metrics.js';
import type { Depth } from '../store/port.js';
import type { Outbox } from '../store/reactive/reactive.js';
import { CATALOGUE, type MetricInfo } from './catalogue.js';
import { readHistogram, type Bounds } from './histogram.js';
import { LIMIT_SERIES, OWN_SERIES } from './counters.js';
import type { LimitUse } from './limits.js';

type Labels = Readonly<Record<string, string | number>>;

interface Value {
  readonly value: number;
  readonly labels: Labels;
  readonly metricName?: string;
}

export interface Family {
  readonly name: string;
  readonly help: string;
  readonly type: MetricInfo['type'];
  readonly values: readonly Value[];
  readonly aggregator: 'sum';
}

/** The data of one scrape. */
export interface View {
  readonly counts: Counts;
  /** The latest pushes of the live instances. */
  readonly shares: readonly Shared[];
  /** The push of the last leader, dead or alive. */
  readonly planner?: Shared;
  /** Metrics of the cluster as a whole; absent if another instance reports them. */
  readonly cluster?: ClusterView;
  readonly bounds: Bounds;
}

export interface ClusterView {
  readonly instances: number;
  readonly depths: Readonly<Record<MeasuredKind, readonly Depth[]>>;
  readonly limits: readonly LimitUse[];
  /** Absent if the store has none. */
  readonly outbox?: Outbox;
}

/** Collects values by metric. Metrics without values are left out. */
class MetricValues {
  readonly #values = new Map<string, Value[]>();

  add(name: string, value: number | undefined, labels: Labels = {}, metricName?: string): void {
    if (value === undefined) return;
    const values = this.#values.get(name) ?? [];
    values.push({ value, labels, ...(metricName === undefined ? {} : { metricName }) });
    this.#values.set(name, values);
  }

  histogram(
    name: string,
    prefix: string,
    fields: Readonly<Record<string, number>>,
    bounds: Bounds,
    labels: Labels,
  ): void {
    const { upTo, count, sumMs } = readHistogram(prefix, fields, bounds);
    if (count === 0) return;
    for (const [index, bound] of bounds.entries())
      this.add(name, upTo[index], { le: bound / 1_000, ...labels }, `${name}_bucket`);
    this.add(name, count, { le: '+Inf', ...labels }, `${name}_bucket`);
    this.add(name, sumMs / 1_000, labels, `${name}_sum`);
    this.add(name, count, labels, `${name}_count`);
  }

  families(): readonly Family[] {
    return [...this.#values].map(([name, values]) => {
      const { type, help } = CATALOGUE[name] as MetricInfo;
      return { name, help, type, values, aggregator: 'sum' };
    });
  }
}

export function families(view: View): readonly Family[] {
  const sheet = new MetricValues();
  for (const [series, fields] of view.counts) {
    if (series === OWN_SERIES) ownCounts(sheet, fields);
    else if (series.startsWith(LIMIT_SERIES)) limitCounts(sheet, series.slice(LIMIT_SERIES.length), fields);
    else workCounts(sheet, series, fields, view.bounds);
  }
  vitals(sheet, view);
  if (view.cluster !== undefined) clusterValues(sheet, view, view.cluster);
  return sheet.families();
}

function ownCounts(sheet: MetricValues, fields: Readonly<Record<string, number>>): void {
  sheet.add('tidemill_leases_lost_total', fields['leasesLost']);
  sheet.add('tidemill_planned_changes_total', fields['plannedChanges']);
  sheet.add('tidemill_planned_batches_total', fields['plannedBatches']);
  sheet.add('tidemill_reconciliations_total', fields['reconciliations']);
  sheet.add('tidemill_history_lost_total', fields['historyLost']);
}

const HELD_UP_BY: readonly HeldUpBy[] = ['concurrency', 'rate', 'breaker', 'key'];

function limitCounts(sheet: MetricValues, scope: string, fields: Readonly<Record<string, number>>): void {
  const [kind, name] = kindAndName(scope);
  sheet.add('tidemill_limit_starts_total', fields['starts'], { kind, name });
  for (const by of HELD_UP_BY) sheet.add('tidemill_limit_held_up_total', fields[by], { kind, name, by });
}

function workCounts(
  sheet: MetricValues,
  series: string,
  fields: Readonly<Record<string, number>>,
  bounds: Bounds,
): void {
  const [kind, name] = kindAndName(series);
  const labels = { kind, name };
  for (const outcome of ENDS) sheet.add('tidemill_attempts_total', fields[outcome], { ...labels, outcome });
  sheet.add('tidemill_enqueued_total', fields['enqueued'], { name });
  sheet.add('tidemill_lost_total', fields['lost'], labels);
  sheet.add('tidemill_reclaimed_total', fields['reclaimed'], labels);
  sheet.histogram('tidemill_wait_seconds', 'wait', fields, bounds, labels);
  for (const status of ['success', 'failure']) {
    sheet.histogram('tidemill_duration_seconds', status, fields, bounds, { ...labels, status });
    const task = { task_name: name, status };
    if (kind === 'task') sheet.histogram('reactive_tasks_duration_seconds', status, fields, bounds, task);
  }
  if (kind === 'task') sheet.add('reactive_tasks_retries_total', fields['retried'] ?? 0, { task_name: name });
}

function kindAndName(series: string): readonly [kind: string, name: string] {
  const colon = series.indexOf(':');
  return [series.slice(0, colon), series.slice(colon + 1)];
}

const total = (shares: readonly Shared[], of: 'running' | 'buffered' | 'abandoned'): number =>
  shares.reduce((sum, { vitals: { [of]: value } }) => sum + value, 0);

function vitals(sheet: MetricValues, { shares }: View): void {
  sheet.add('tidemill_running', total(shares, 'running'));
  sheet.add('tidemill_buffered', total(shares, 'buffered'));
  sheet.add('tidemill_abandoned', total(shares, 'abandoned'));
  for (const mode of ['stream', 'direct', 'poll'] as const) {
    const count = shares.filter((share) => share.vitals.wakeUp === mode).length;
    if (count > 0) sheet.add('tidemill_wake_up', count, { mode });
  }
}

/** Values that only one instance of the cluster reports. */
function clusterValues(
  sheet: MetricValues,
  view: View,
  { instances, depths, limits, outbox }: ClusterView,
): void {
  sheet.add('tidemill_instances', instances);
  sheet.add('tidemill_outbox_changes', outbox?.changes);
  sheet.add('tidemill_outbox_age_seconds', outbox && outbox.ageMs / 1_000);
  sheet.add('tidemill_outbox_stopped', outbox && Number(outbox.stopped));
  for (const [kind, ofKind] of Object.entries(depths)) {
    for (const { name, counts, due, lagMs } of ofKind) {
      sheet.add('tidemill_queue_depth', due, { kind, name, status: 'due' });
      for (const [status, count] of Object.entries(counts)) {
        sheet.add('tidemill_queue_depth', count, { kind, name, status });
        if (kind === 'task') sheet.add('reactive_tasks_queue_depth', count, { task_name: name, status });
      }
      sheet.add('tidemill_lag_seconds', lagMs / 1_000, { kind, name });
      if (kind === 'task') sheet.add('reactive_tasks_global_lag_seconds', lagMs / 1_000, { task_name: name });
    }
  }
  for (const use of limits) limitValues(sheet, use);
  planning(sheet, view);
}

function limitValues(sheet: MetricValues, { kind, name, ...use }: LimitUse): void {
  const labels = { kind, name };
  sheet.add('tidemill_limit_running', use.running, labels);
  sheet.add('tidemill_limit_capacity', use.capacity, labels);
  sheet.add('tidemill_limit_window_starts', use.windowStarts, labels);
  sheet.add('tidemill_limit_window_capacity', use.windowCapacity, labels);
  sheet.add('tidemill_limit_waiting', use.waiting, labels);
  if (use.breaker === undefined) return;
  for (const state of ['closed', 'open', 'trial'] as const)
    sheet.add('tidemill_limit_breaker_state', Number(use.breaker === state), { ...labels, state });
}

function planning(sheet: MetricValues, { shares, planner }: View): void {
  const known = planner?.vitals.planner;
  if (planner === undefined || known === undefined) return;
  const alive = shares.some(({ id }) => id === planner.id);
  sheet.add('tidemill_planner_leaders', alive ? 1 : 0);
  // Without a live leader, changes have been waiting since its last push.
  const lagMs = known.lagMs + (alive ? 0 : planner.ageMs);
  sheet.add('reactive_tasks_change_stream_lag_seconds', lagMs / 1_000);
  if (known.lastReconciledAt !== undefined)
    sheet.add('reactive_tasks_last_reconciliation_timestamp_seconds', known.lastReconciledAt / 1_000);
  if (known.headroomMs !== undefined) {
    const leftMs = known.headroomMs - (alive ? 0 : planner.ageMs);
    sheet.add('tidemill_history_headroom_seconds', Math.max(0, leftMs) / 1_000);
  }
  if (known.setAside !== undefined) sheet.add('tidemill_set_aside_documents', known.setAside);
  if (!alive) return;
  for (const { collection, processed } of known.reconciling)
    sheet.add('tidemill_reconciliation_documents', processed, { collection });
}
