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

/** Configures metrics. docs/metrics.md lists them. */
export interface MonitoringOptions {
  /** Collect metrics. If false, nothing is counted or stored, and `getPrometheusMetrics` returns null. Default: true. */
  readonly enabled?: boolean;
  /**
   * What a scrape covers. `cluster`: all instances, whichever one is scraped. `local`: the scraped instance only; one
   * instance, the leader if there is one, adds the metrics of the cluster as a whole. Default: 'cluster'.
   */
  readonly scrapeMode?: ScrapeMode;
  /** With `cluster`: how often an instance pushes its counters to the store. Default: 60,000. */
  readonly pushIntervalMs?: Duration;
  /** On MongoDB: the read preference for counting the backlog. Default: 'secondaryPreferred'. */
  readonly readPreference?: MetricsReadPreference;
  /** Upper bounds of the histogram buckets, in seconds, ascending. Default: 15 bounds from 5 ms to 30 minutes. */
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
    `${WHERE}: buckets must be 1 to ${String(MOST_BUCKETS)} ascending numbers of seconds, at least a millisecond apart, ` +
      `such as [0.01, 0.1, 1, 10]; got ${shown}.`,
  );
}
