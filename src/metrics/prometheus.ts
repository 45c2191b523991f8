import type { Logger } from '../core/logger.js';
import type { Family } from './families.js';

/** The part of prom-client's registry that a scrape needs. What `getPrometheusMetrics` answers is a whole one. */
export interface PrometheusRegistry {
  /** What to say as `Content-Type`. */
  readonly contentType: string;
  /** The text that Prometheus reads. */
  metrics(): Promise<string>;
  getMetricsAsJSON(): Promise<readonly object[]>;
}

interface PromClient {
  readonly AggregatorRegistry: { aggregate(metrics: readonly (readonly Family[])[]): PrometheusRegistry };
}

const MISSING: ReadonlySet<unknown> = new Set(['ERR_MODULE_NOT_FOUND', 'MODULE_NOT_FOUND']);

const load = async (): Promise<PromClient> => (await import('prom-client')) as unknown as PromClient;

/** prom-client, loaded when it is first asked for; null where it is not installed, which is said once. */
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
        'getPrometheusMetrics needs prom-client, and answers null without it: npm install prom-client',
      );
      return null;
    }));
  }
}
