import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import type { Logger } from '../core/logger.js';
import { checkBoolean, checkFunction, checkInteger, checkKeys, checkName } from '../core/options.js';
import { DEFAULT_RETENTION } from '../jobs/registry.js';
import { toRetention, type Retention } from '../jobs/definition.js';
import type { RetentionMs, Store } from '../store/port.js';
import { checkMonitoring, type MonitoringOptions, type MonitoringSettings } from '../metrics/options.js';
import { checkReactiveOptions, type ReactiveOptions, type ReactiveSettings } from '../reactive/options.js';
import { toMs, type Duration } from '../time/duration.js';
import { checkStore, isStore } from './opening/open-store.js';
import { OptionError } from '../core/errors.js';

export interface TidemillOptions<S extends Store = Store> {
  /**
   * A store, such as `mongodb({ … })`, or a URL: `mongodb://…`, `postgres://…`, `file:./dir`, `embedded:` or `memory:`.
   */
  readonly store: S | string;
  /**
   * Names this instance in the store; unique in the cluster. `start` refuses a second live process with the same id, and
   * after a crash it waits until the old process is known to be dead. Default: host name, pid and eight random hex
   * digits.
   */
  readonly instanceId?: string;
  /** How many handlers of jobs and reactive tasks may run at once on this instance, over all names. Default: 50. */
  readonly concurrency?: number;
  /** How long this instance may be silent before others take over its work; at least 500 ms. Default: '30s'. */
  readonly leaseDuration?: Duration;
  /** How long to wait between two polls for work. */
  readonly pollInterval?: {
    /** The shortest wait. Default: '100ms'. */
    readonly min?: Duration;
    /** The longest wait. If the store sends no notifications, it is 1 s, or `min` if that is longer. Default: '5s'. */
    readonly max?: Duration;
  };
  /** How long `stop()` waits for running handlers before their signals abort. Default: '30s'. */
  readonly shutdownTimeout?: Duration;
  /** Reclaim the work of dead instances. If false here, another instance must do it. Default: true. */
  readonly recoverStaleJobs?: boolean;
  /** How long finished jobs are kept. */
  readonly retention?: Retention;
  /** How long audit log entries are kept. Default: '90d'. */
  readonly auditRetention?: Duration;
  /** How many attempts a job's history keeps; 0 keeps none. Default: 5. */
  readonly executionHistoryLimit?: number;
  /** Claim nothing new while this many handlers run past their timeout. Default: `concurrency`. */
  readonly maxAbandoned?: number;
  /** Options of reactive tasks. */
  readonly reactive?: ReactiveOptions;
  /** Options of metrics. */
  readonly monitoring?: MonitoringOptions;
  /** Create OpenTelemetry spans if `@opentelemetry/api` is installed. Default: true. */
  readonly tracing?: boolean;
  /**
   * A logger with the methods of pino, or `false` for none. Default: warnings and errors go to console.error, at most
   * one line in ten seconds.
   */
  readonly logger?: Logger | false;
}

export interface MillSettings {
  readonly instanceId: string;
  readonly concurrency: number;
  readonly leaseMs: number;
  readonly pollMs: { readonly min: number; readonly max: number; readonly maxWithoutWakeUp: number };
  readonly shutdownMs: number;
  readonly recoverStaleJobs: boolean;
  readonly retention: RetentionMs;
  readonly auditMs: number;
  readonly historyLimit: number;
  readonly maxAbandoned: number;
  readonly reactive: ReactiveSettings;
  readonly monitoring: MonitoringSettings;
  readonly tracing: boolean;
}

const WHERE = 'new Tidemill';
const KEYS = [
  'store',
  'instanceId',
  'concurrency',
  'leaseDuration',
  'pollInterval',
  'shutdownTimeout',
  'recoverStaleJobs',
  'retention',
  'auditRetention',
  'executionHistoryLimit',
  'maxAbandoned',
  'reactive',
  'monitoring',
  'tracing',
  'logger',
];
/** The longest default poll interval without notifications: then polling alone decides how late work starts. */
const POLL_ALONE_MS = 1_000;

export function checkMillOptions(options: TidemillOptions): MillSettings {
  // The URL is not shown: it may hold a password.
  if (typeof options === 'string')
    throw new OptionError(
      `${WHERE}: options must be an object, got a text. For a URL: new Tidemill({ store: url }).`,
    );
  if (isStore(options))
    throw new OptionError(`${WHERE}: pass the store as an option: new Tidemill({ store }).`);
  checkKeys(WHERE, options, KEYS);
  if (typeof options !== 'object')
    throw new OptionError(`${WHERE}: options with a store are needed: new Tidemill({ store }).`);
  checkStore(options.store);
  checkLogger(options.logger);
  const {
    instanceId,
    concurrency = 50,
    leaseDuration = '30s',
    shutdownTimeout = '30s',
    recoverStaleJobs = true,
  } = options;
  checkInteger(WHERE, 'concurrency', concurrency, 1, 10_000);
  return {
    instanceId: instanceId === undefined ? randomId() : checkName(WHERE, 'instanceId', instanceId),
    concurrency,
    leaseMs: toMs(WHERE, 'leaseDuration', leaseDuration, 500),
    pollMs: poll(options.pollInterval),
    shutdownMs: toMs(WHERE, 'shutdownTimeout', shutdownTimeout),
    recoverStaleJobs: checkBoolean(WHERE, 'recoverStaleJobs', recoverStaleJobs),
    retention: { ...DEFAULT_RETENTION, ...toRetention(WHERE, options.retention) },
    auditMs: toMs(WHERE, 'auditRetention', options.auditRetention ?? '90d', 1),
    historyLimit: checkInteger(WHERE, 'executionHistoryLimit', options.executionHistoryLimit ?? 5, 0, 1_000),
    maxAbandoned: checkInteger(
      WHERE,
      'maxAbandoned',
      options.maxAbandoned ?? concurrency,
      1,
      Number.MAX_SAFE_INTEGER,
    ),
    reactive: checkReactiveOptions(options.reactive),
    monitoring: checkMonitoring(options.monitoring),
    tracing: checkBoolean(WHERE, 'tracing', options.tracing ?? true),
  };
}

const randomId = (): string => `${hostname()}-${String(process.pid)}-${randomBytes(4).toString('hex')}`;

function poll(given: TidemillOptions['pollInterval']): MillSettings['pollMs'] {
  checkKeys(`${WHERE}: pollInterval`, given, ['min', 'max']);
  const min = toMs(WHERE, 'pollInterval.min', given?.min ?? '100ms', 1);
  const max = toMs(WHERE, 'pollInterval.max', given?.max ?? '5s', 1);
  if (max < min) throw new OptionError(`${WHERE}: pollInterval.max must not be less than pollInterval.min.`);
  return { min, max, maxWithoutWakeUp: given?.max === undefined ? Math.max(min, POLL_ALONE_MS) : max };
}

function checkLogger(logger: unknown): void {
  if (logger === undefined || logger === false) return;
  for (const level of ['debug', 'info', 'warn', 'error']) {
    checkFunction(WHERE, `logger.${level}`, (logger as Record<string, unknown> | null)?.[level]);
  }
}
