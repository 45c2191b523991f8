import { OptionError } from '../core/errors.js';
import { checkBoolean, checkKeys, checkOneOf, show } from '../core/options.js';
import { toMs, type Duration } from '../time/duration.js';
import type { Bounds } from './histogram.js';

const SCRAPE_MODES = ['cluster', 'local'] as const;
const READ_PREFERENCES = [
  'primary',
  'primaryPreferred',
  'secondary',
  'secondaryPreferred',
  'nearest',
] as const;

type ScrapeMode = (typeof SCRAPE_MODES)[number];
type MetricsReadPreference = (typeof READ_PREFERENCES)[number];

/** What is measured, and how it is asked for. docs/metrics.md has the metrics. */
export interface MonitoringOptions {
  /** Count at all. With false `getPrometheusMetrics` answers null. Default: true. */
  readonly enabled?: boolean;
  /**
   * Whom an answer is about. `cluster`: all instances, whichever is asked. `local`: the one that is asked; one of them, the
   * leader where there is one, adds what is known of the cluster only. Default: 'cluster'.
   */
  readonly scrapeMode?: ScrapeMode;
  /** How often an instance tells the others what it has counted, with `cluster`. Default: 60,000. */
  readonly pushIntervalMs?: Duration;
  /** Which servers count how much work there is, on MongoDB. Default: 'secondaryPreferred'. */
  readonly readPreference?: MetricsReadPreference;
  /** Upper bounds of the histograms' buckets, in seconds, ascending. Default: from 5 ms to half an hour. */
  readonly buckets?: readonly number[];
}

export interface MonitoringSettings {
  readonly enabled: boolean;
  readonly scrapeMode: ScrapeMode;
  readonly pushMs: number;
  readonly readPreference: MetricsReadPreference;
  readonly bounds: Bounds;
}

const WHERE = 'new Tidemill: monitoring';
const LEAST_PUSH_MS = 100;
const MOST_BUCKETS = 100;
const BUCKETS: readonly number[] = [
  0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800,
];

export function checkMonitoring(options: MonitoringOptions = {}): MonitoringSettings {
  checkKeys(WHERE, options, ['enabled', 'scrapeMode', 'pushIntervalMs', 'readPreference', 'buckets']);
  const {
    enabled = true,
    scrapeMode = 'cluster',
    pushIntervalMs = 60_000,
    readPreference = 'secondaryPreferred',
    buckets = BUCKETS,
  } = options;
  return {
    enabled: checkBoolean(WHERE, 'enabled', enabled),
    scrapeMode: checkOneOf(WHERE, 'scrapeMode', scrapeMode, SCRAPE_MODES),
    pushMs: toMs(WHERE, 'pushIntervalMs', pushIntervalMs, LEAST_PUSH_MS),
    readPreference: checkOneOf(WHERE, 'readPreference', readPreference, READ_PREFERENCES),
    bounds: checkBuckets(buckets),
  };
}

function checkBuckets(buckets: unknown): Bounds {
  const list: readonly unknown[] = Array.isArray(buckets) ? buckets : [];
  const bounds = list.map((bound) => (typeof bound === 'number' ? Math.round(bound * 1_000) : NaN));
  const ascend = bounds.every((bound, index) => bound > (bounds[index - 1] ?? 0) && bound < Infinity);
  if (bounds.length > 0 && bounds.length <= MOST_BUCKETS && ascend) return bounds;
  const shown = Array.isArray(buckets) ? `[${list.map(show).join(', ')}]` : show(buckets);
  throw new OptionError(
    `${WHERE}: buckets must be 1 to ${String(MOST_BUCKETS)} numbers of seconds, ascending, a millisecond apart at least, ` +
      `such as [0.01, 0.1, 1, 10]; got ${shown}.`,
  );
}
