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
import { checkStore } from './open-store.js';
import { OptionError } from '../core/errors.js';

export interface TidemillOptions<S extends Store = Store> {
  /** An opened store, or a URL: `mongodb://…`, `postgres://…`, `file:./dir` or `memory:`. */
  readonly store: S | string;
  /** Names this process in the store. Default: host name, pid and random letters. */
  readonly instanceId?: string;
  /** How many handlers may run at once on this instance, over all names. Default: 50. */
  readonly concurrency?: number;
  /** How long this process may be silent before others take its work over. Default: '30s'. */
  readonly leaseDuration?: Duration;
  /** Shortest and longest wait between two looks for work. Default: `{ min: '100ms', max: '5s' }`. */
  readonly pollInterval?: { readonly min?: Duration; readonly max?: Duration };
  /** How long `stop()` waits for running handlers. Default: '30s'. */
  readonly shutdownTimeout?: Duration;
  /** Take over the work of dead processes. Default: true. */
  readonly recoverStaleJobs?: boolean;
  /** How long finished jobs are kept. Default: completed and cancelled '7d', failed '30d'. */
  readonly retention?: Retention;
  /** How long entries of the audit log are kept. Default: '90d'. */
  readonly auditRetention?: Duration;
  /** Attempts kept in a job's history; 0 keeps none. Default: 5. */
  readonly executionHistoryLimit?: number;
  /** Handlers past their timeout that still run: at this many, nothing new is claimed. Default: `concurrency`. */
  readonly maxAbandoned?: number;
  /** Settings of reactive tasks. */
  readonly reactive?: ReactiveOptions;
  /** What is measured. */
  readonly monitoring?: MonitoringOptions;
  /** Make spans where `@opentelemetry/api` is installed. Default: true. */
  readonly tracing?: boolean;
  /** Shaped like pino. Default: warnings and errors to console.error, at most a line in ten seconds; `false` = silence. */
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
/** Without notifications the poll alone decides how late work is, so it may not grow as long by default. */
const POLL_ALONE_MS = 1_000;

export function checkMillOptions(options: TidemillOptions): MillSettings {
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
