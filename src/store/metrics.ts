/**
 * The port of metrics: what instances report, and what a scrape or the dashboard reads. Begin with `MetricsStore`.
 * Counts belong to the cluster, only grow, and survive instance restarts; vitals of an instance age with it. Nothing
 * depends on metrics: a failed call is logged, and later calls catch up. port.ts explains the words of the comments.
 */
import type { MeasuredKind } from '../core/meter.js';
import type { WakeUp } from './work.js';

export type { MeasuredKind } from '../core/meter.js';

/** What happened to the work of one name in one minute. Times are milliseconds. */
export interface Activity {
  /** Handlers that were called, and for how long their work had been due by then. */
  readonly started: number;
  readonly waitMsSum: number;
  readonly waitMsMax: number;
  /** Attempts that succeeded. */
  readonly done: number;
  /** Attempts that failed, with none left. */
  readonly failed: number;
  /** Attempts that failed and are tried again. */
  readonly retried: number;
  /** How long the attempts of these three took. */
  readonly runMsSum: number;
  readonly runMsMax: number;
}

/** The activity of one name. */
export interface Cell extends Activity {
  readonly kind: MeasuredKind;
  readonly name: string;
}

/** What waited, of one name, when an instance looked. */
export interface Waiting {
  readonly kind: MeasuredKind;
  readonly name: string;
  /** Due and not started; counting stops at a limit, so there may be more. */
  readonly due: number;
  /** How long the oldest of it has been due. */
  readonly lagMs: number;
}

export interface SeriesQuery {
  /** Minutes that begin from here on, ... */
  readonly from: Date;
  /** ... and not after this. */
  readonly to: Date;
  readonly kind?: MeasuredKind;
  readonly name?: string;
}

/** One name in one minute, over all instances. */
export interface SeriesPoint extends Cell {
  /** When the minute began, by the store's clock. */
  readonly at: Date;
  /** What waited in that minute; absent if no instance looked. */
  readonly backlog?: number;
  readonly lagMs?: number;
}

/** What an instance says of itself. */
export interface Vitals {
  readonly running: number;
  readonly buffered: number;
  readonly abandoned: number;
  readonly wakeUp?: WakeUp;
  /** Only of leaders; of one that leads several partitions, all together. */
  readonly planner?: PlannerVitals;
}

export interface PlannerVitals {
  /** For how long the oldest change that is not planned yet has been waiting; 0 if none is. */
  readonly lagMs: number;
  /** How much longer planning could pause before changes are missed for good; absent if that is unknown, or never. */
  readonly headroomMs?: number;
  /** When a source was last reconciled, in milliseconds since 1970. */
  readonly lastReconciledAt?: number;
  /** What is being reconciled, and how many of its documents have been looked at. */
  readonly reconciling: readonly { readonly collection: string; readonly processed: number }[];
  /** Documents whose task an open transaction holds; absent if the leader runs an older version. */
  readonly setAside?: number;
}

/** Returns the state of planning as a whole, from that of several partitions; undefined without any. */
export function combinedVitals(parts: readonly PlannerVitals[]): PlannerVitals | undefined {
  if (parts.length < 2) return parts[0];
  const processed = new Map<string, number>();
  for (const { collection, processed: count } of parts.flatMap(({ reconciling }) => reconciling))
    processed.set(collection, (processed.get(collection) ?? 0) + count);
  const headroom = parts.flatMap(({ headroomMs }) => headroomMs ?? []);
  const reconciled = parts.flatMap(({ lastReconciledAt }) => lastReconciledAt ?? []);
  return {
    lagMs: Math.max(...parts.map(({ lagMs }) => lagMs)),
    ...(headroom.length === 0 ? {} : { headroomMs: Math.min(...headroom) }),
    ...(reconciled.length === 0 ? {} : { lastReconciledAt: Math.max(...reconciled) }),
    reconciling: [...processed].map(([collection, count]) => ({ collection, processed: count })),
    setAside: parts.reduce((sum, { setAside = 0 }) => sum + setAside, 0),
  };
}

/** Counts by series and field. A series is any text, made of a kind and a name. */
export type Counts = ReadonlyMap<string, Readonly<Record<string, number>>>;

/** What one instance reports: how much its counts have grown since its last share, and how it is. */
export interface Share {
  /** Of one mill object: 32 hexadecimal digits. */
  readonly id: string;
  /** Raised with each share, from 1. A share that is sent again keeps its number and its growth. */
  readonly number: number;
  readonly instanceId: string;
  /** How long until the next share. */
  readonly everyMs: number;
  readonly growth: Counts;
  readonly vitals: Vitals;
}

/** What the store knows of one instance. */
export interface Shared extends Omit<Share, 'growth' | 'number'> {
  /** How old it is by the server's clock. */
  readonly ageMs: number;
}

/** Counts, shares and minutes of the whole cluster. */
export interface MetricsStore {
  /**
   * Adds `growth` to the counts, and replaces what this instance said before, in one write.
   * Precondition: the last share that was counted of this `id` has a lower number; otherwise nothing is written.
   * Repeat: no effect, so a lost answer costs nothing.
   * Caller: the metrics pusher, every `everyMs` and before each scrape; shares of one instance come one at a time.
   */
  push(share: Share): Promise<void>;
  /**
   * Returns all counts, and the last share of each instance with its age by the server's clock, dead ones included, as
   * of one moment. Repeat: safe. Caller: a scrape.
   */
  read(): Promise<{ readonly counts: Counts; readonly shares: readonly Shared[] }>;
  /**
   * Forgets the share of an instance that stops; its counts stay. Repeat: no effect.
   * Caller: the metrics pusher, after its last push was answered.
   */
  leave(id: string): Promise<void>;
  /**
   * Keeps what happened on one instance in each minute, in place of what was kept for it. Minutes are kept for
   * `KEEP_MINUTES_MS`. Repeat: no effect. Caller: the metrics pusher; a minute that is not over comes again.
   */
  saveMinutes(
    share: string,
    minutes: readonly { readonly at: Date; readonly cells: readonly Cell[] }[],
  ): Promise<void>;
  /**
   * Keeps what waited in the minute that begins at `at`; if several instances looked, the last one counts. Repeat: no
   * effect. Caller: the instance that speaks for the cluster, once a minute.
   */
  saveWaiting(at: Date, waiting: readonly Waiting[]): Promise<void>;
  /**
   * Returns what happened in each minute, over all instances: `SUMS` added up, the greatest of `PEAKS`; in order of
   * time, kind and name. Repeat: safe. Caller: the dashboard.
   */
  series(query: SeriesQuery): Promise<readonly SeriesPoint[]>;
  /**
   * Deletes shares older than `KEEP_SHARES_MS`, and counts that have not grown for `KEEP_COUNTS_DAYS`.
   * Precondition: they have not changed meanwhile. Repeat: safe.
   * Caller: the instance that speaks for the cluster, about once an hour.
   */
  forget(): Promise<void>;
}

/** Numbers of an activity that are added up over instances; of `PEAKS` the greatest counts. */
export const SUMS = ['started', 'waitMsSum', 'done', 'failed', 'retried', 'runMsSum'] as const;
export const PEAKS = ['waitMsMax', 'runMsMax'] as const;

/** The activity of a minute in which nothing happened. */
export const NO_ACTIVITY: Activity = {
  started: 0,
  waitMsSum: 0,
  waitMsMax: 0,
  done: 0,
  failed: 0,
  retried: 0,
  runMsSum: 0,
  runMsMax: 0,
};

/** How long minutes are kept. */
export const KEEP_MINUTES_MS: number = 86_400_000;
/** How long the number of an instance's last share is kept. */
export const KEEP_SHARES_MS: number = 86_400_000;
/** How many days counts that do not grow are kept. */
export const KEEP_COUNTS_DAYS = 30;

export const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;

/** The day of a time, as a number; precise enough for the age of a count. */
export const dayOf = (now: number): number => Math.floor(now / DAY_MS);
