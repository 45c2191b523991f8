/** Converts a view of the metrics to the JSON form that prom-client aggregates. Pure. */
import { ENDS } from '../core/meter.js';
import type { Counts, MeasuredKind, Shared } from '../store/metrics.js';
import type { Depth } from '../store/port.js';
import { CATALOGUE, type MetricInfo } from './catalogue.js';
import { readHistogram, type Bounds } from './histogram.js';
import { OWN_SERIES } from './counters.js';

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
function clusterValues(sheet: MetricValues, view: View, { instances, depths }: ClusterView): void {
  sheet.add('tidemill_instances', instances);
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
  planning(sheet, view);
}

function planning(sheet: MetricValues, { shares, planner }: View): void {
  const known = planner?.vitals.planner;
  if (planner === undefined || known === undefined) return;
  const alive = shares.includes(planner);
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
