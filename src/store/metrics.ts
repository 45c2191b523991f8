/**
 * The port of measures: what instances tell of themselves, and what a scrape or a dashboard asks. Counts belong to the
 * cluster and only grow, whoever comes and goes; what an instance says of its present state ages with it.
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

/** What waited, of one name, when somebody looked. */
export interface Waiting {
  readonly kind: MeasuredKind;
  readonly name: string;
  /** Due and not started; counting stops at a limit, so there may be more. */
  readonly due: number;
  /** How long the first of it has been due. */
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
  /** What waited in that minute; absent where nobody looked. */
  readonly backlog?: number;
  readonly lagMs?: number;
}

/** What an instance says of itself. */
export interface Vitals {
  readonly running: number;
  readonly buffered: number;
  readonly abandoned: number;
  readonly wakeUp?: WakeUp;
  /** Only of the one that plans. */
  readonly planner?: PlannerVitals;
}

export interface PlannerVitals {
  /** For how long the oldest change that is not planned yet has been waiting; 0 where none is. */
  readonly lagMs: number;
  /** How much longer planning could rest before changes are missed for good; absent where that is unknown, or never. */
  readonly headroomMs?: number;
  /** When a source was last looked at as a whole, in milliseconds since 1970. */
  readonly lastReconciledAt?: number;
  /** What is being looked at as a whole, and how many of its documents have been. */
  readonly reconciling: readonly { readonly collection: string; readonly processed: number }[];
  /** Documents whose task an open transaction holds; absent if an older version tells. */
  readonly setAside?: number;
}

/** Counts by series and field; a series is a kind and a name. */
export type Counts = ReadonlyMap<string, Readonly<Record<string, number>>>;

/** What one instance tells: how much the counts have grown since its last share, and how it is. */
export interface Share {
  /** Of one mill object: 32 hexadecimal digits. */
  readonly id: string;
  /** Raised with each share, from 1: one that is sent again is counted once. */
  readonly number: number;
  readonly instanceId: string;
  /** How long it takes until the next one. */
  readonly everyMs: number;
  readonly growth: Counts;
  readonly vitals: Vitals;
}

/** What is known of one instance. */
export interface Shared extends Omit<Share, 'growth' | 'number'> {
  /** How old it is by the server's clock. */
  readonly ageMs: number;
}

export interface MetricsStore {
  /** Adds to the counts, and keeps what the instance says of itself. A share that was counted already is left out. */
  push(share: Share): Promise<void>;
  /** All counts of the cluster, and the instances, dead ones included. */
  read(): Promise<{ readonly counts: Counts; readonly shares: readonly Shared[] }>;
  /** An instance has come to its end: its counts stay. */
  leave(id: string): Promise<void>;
  /** Keeps what happened on one instance in the minutes that begin then, in the place of what it said before. */
  saveMinutes(
    share: string,
    minutes: readonly { readonly at: Date; readonly cells: readonly Cell[] }[],
  ): Promise<void>;
  /** Keeps what waited in the minute that begins then; of several who looked the last one counts. */
  saveWaiting(at: Date, waiting: readonly Waiting[]): Promise<void>;
  /** In order of time, kind and name. */
  series(query: SeriesQuery): Promise<readonly SeriesPoint[]>;
  /** Forgets instances that were last heard a day ago, and counts that have not grown for a month. */
  forget(): Promise<void>;
}

/** Which numbers of an activity are added up over instances, and of which the greatest counts. */
export const SUMS = ['started', 'waitMsSum', 'done', 'failed', 'retried', 'runMsSum'] as const;
export const PEAKS = ['waitMsMax', 'runMsMax'] as const;

/** Nothing has happened yet. */
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

/** For how long minutes are kept. */
export const KEEP_MINUTES_MS: number = 86_400_000;
/** For how long it is remembered which share of an instance was counted last. */
export const KEEP_SHARES_MS: number = 86_400_000;
/** For how many days counts that do not grow are kept. */
export const KEEP_COUNTS_DAYS = 30;

export const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;

/** The day of a time, as a number: how old a count is need not be known better. */
export const dayOf = (now: number): number => Math.floor(now / DAY_MS);
