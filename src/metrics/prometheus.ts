import type { Logger } from '../core/logger.js';
import type { Family } from './families.js';

/** The part of prom-client's `Registry` that a scrape needs. `getPrometheusMetrics` returns a complete one. */
export interface PrometheusRegistry {
  /** The value for the `Content-Type` header. */
  readonly contentType: string;
  /** The metrics in Prometheus's text format. */
  metrics(): Promise<string>;
  getMetricsAsJSON(): Promise<readonly object[]>;
}

interface PromClient {
  readonly AggregatorRegistry: { aggregate(metrics: readonly (readonly Family[])[]): PrometheusRegistry };
}

const MISSING: ReadonlySet<unknown> = new Set(['ERR_MODULE_NOT_FOUND', 'MODULE_NOT_FOUND']);

const load = async (): Promise<PromClient> => (await import('prom-client')) as unknown as PromClient;

/** Loads prom-client on first use. If it is not installed, logs that once and returns null. */
export class Prometheus {
  readonly #log: Logger;
  readonly #load: () => Promise<PromClient>;
  #client: Promise<PromClient | null> | undefined;

  constructor(log: Logger, loadClient: () => Promise<PromClient> = load) {
    this.#log = log;
    this.#load = loadClient;
  }

  client(): Promise<PromClient | null> {
    return (this.#client ??= this.#load().catch((error: unknown) => {
      if (!MISSING.has((error as { code?: unknown } | undefined)?.code)) throw error;
      this.#log.warn(
        {},
        'getPrometheusMetrics returns null, because prom-client is not installed: npm install prom-client',
      );
      return null;
    }));
  }
}
