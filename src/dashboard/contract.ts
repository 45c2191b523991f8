/**
 * The protocol between the dashboard's page and its server: JSON over `fetch`, below `<basePath>/api/`. Dates are ISO
 * strings. Every GET except `session` can also be followed live: `GET api/live?path=<path with its query>` responds
 * with server-sent events. Each event carries the whole response again and is sent when it has changed.
 *
 * An error is `{ error: { code, message } }` with a matching status: 400 invalid parameter, 401 access denied, 403
 * not allowed, 404 not found, 409 not possible in the current state, 429 too many live streams, 500 internal error
 * without details, 503 not available now.
 */

/**
 * What a viewer may do. `view`: see everything but data. `payload`: also see payloads, results, logs and source
 * documents. `act`: make changes.
 */
export type Right = 'view' | 'payload' | 'act';

export type WorkKind = 'jobs' | 'tasks' | 'documents';

/** `GET api/session` */
export interface Session {
  readonly rights: readonly Right[];
  readonly readOnly: boolean;
  /** Send it back in the header `x-tidemill-csrf` of every POST. */
  readonly csrf: string;
  /** Kind of store: `mongodb`, `postgres`, `embedded`, `memory`. */
  readonly store: string;
  /** Kinds of work that this store and this mill have. */
  readonly kinds: readonly WorkKind[];
  /** Statuses by kind, in display order. */
  readonly statuses: Readonly<Record<WorkKind, readonly string[]>>;
  readonly version: string;
  /** Actions on everything that a filter matches, by kind; empty without the right `act`. */
  readonly bulk: Readonly<Record<WorkKind, readonly Action[]>>;
  /** Actions on a name, by kind; empty without the right `act`. */
  readonly nameActions: Readonly<Record<WorkKind, readonly Action[]>>;
}

/** `GET api/overview?range=15m|1h|6h|24h&kind=&name=`: a kind or a name limits `series` to it. */
export interface Overview {
  readonly now: string;
  readonly range: string;
  /** One point per step, oldest first, including steps in which nothing happened. */
  readonly series: {
    readonly stepMs: number;
    readonly from: string;
    readonly done: readonly number[];
    readonly failed: readonly number[];
    readonly retried: readonly number[];
    /** Mean milliseconds from due to started; null if nothing started. */
    readonly waitMs: readonly (number | null)[];
    readonly runMs: readonly (number | null)[];
    /** Due work that waited; null if no instance measured it. */
    readonly backlog: readonly (number | null)[];
  };
  /** Whether all work of the cluster is paused. */
  readonly paused: boolean;
  readonly names: readonly NameRow[];
  readonly instances: readonly InstanceRow[];
  readonly health: {
    readonly ok: boolean;
    readonly reasons: readonly string[];
    readonly troubles: readonly string[];
    /** How instances learn of new work. */
    readonly wakeUp?: string;
  };
  /** Reactive tasks: the leading instance, and how long the oldest pending task has been due. */
  readonly planner: {
    readonly leader: string | null;
    readonly lagMs: number | null;
    readonly reconciling: readonly {
      readonly task: string;
      readonly done: number;
      /** An estimate. */
      readonly total?: number;
    }[];
  };
}

export interface NameRow {
  readonly kind: WorkKind;
  readonly name: string;
  /** Paused by itself. */
  readonly paused: boolean;
  /** Counts by status; `capped` lists the statuses whose count is a lower bound. */
  readonly counts: Readonly<Record<string, number>>;
  readonly capped: readonly string[];
  /** Within the range. */
  readonly done: number;
  readonly failed: number;
  readonly waitMs: number | null;
  readonly runMs: number | null;
  /** Live instances that run it. */
  readonly instances: number;
}

export interface InstanceRow {
  readonly instanceId: string;
  readonly host?: string;
  readonly pid?: number;
  readonly names: readonly string[];
  readonly tasks: readonly string[];
  readonly alive: boolean;
  readonly leader: boolean;
  /** The time left on its lease. */
  readonly leaseLeftMs: number;
}

/**
 * `GET api/work?kind=jobs&name=&status=&error=&field=<path>:<value>&from=&to=&time=<T>&sort=<T>&order=asc|desc`
 * `&cursor=&limit=50`, where `<T>` is `createdAt`, `updatedAt` or `dueAt`.
 *
 * `name`, `status` and `field` can be repeated. `field` compares a field of the payload (jobs), of the source
 * document (tasks) or of the document itself, and requires the right `payload`. A value that reads as JSON (`5`,
 * `true`, `"5"`) is compared as that JSON value, any other as text.
 */
export interface WorkPage {
  readonly items: readonly WorkItem[];
  readonly next: string | null;
  readonly previous: string | null;
  /** The time limit was reached, so there may be more. */
  readonly partial: boolean;
}

export interface WorkItem {
  readonly kind: WorkKind;
  /** Opaque id, used in `api/work/<kind>/<id>`. */
  readonly id: string;
  /** The id to display: the job's, or the source document's. */
  readonly title: string;
  readonly name: string;
  readonly status: string;
  readonly dueAt: string | null;
  readonly createdAt: string | null;
  readonly updatedAt: string | null;
  readonly attempts: number;
  readonly error?: string;
  /** A number from 0 to 100, or whatever else the handler reported. */
  readonly progress?: unknown;
  readonly claimedBy?: string;
  readonly recurring?: boolean;
}

/** `GET api/work/<kind>/<id>` */
export interface WorkDetail extends WorkItem {
  /** Why it is not running, one sentence per reason; empty if it runs or has ended. */
  readonly why: readonly Why[];
  readonly actions: readonly Action[];
  readonly timeline: readonly TimelineEntry[];
  /** Further fields to display, in order. */
  readonly facts: readonly { readonly label: string; readonly value: string }[];
  /** Absent without the right `payload`. Values hidden by `redact` read `[redacted]`. */
  readonly payload?: unknown;
  readonly result?: unknown;
  readonly logs?: readonly { readonly at: string; readonly message: string; readonly fields?: unknown }[];
  /** Reactive tasks: the document as it is now, or null if it is gone. */
  readonly source?: { readonly collection: string; readonly document: unknown };
  /** Whether data was left out because the viewer lacks the right `payload`. */
  readonly hidden: boolean;
  /** Whether a retry may replace the payload: a failed or cancelled job, whose payload is not too large to show. */
  readonly editable?: boolean;
  readonly scheduleId?: string;
}

export interface Why {
  readonly code:
    | 'paused'
    | 'not-due'
    | 'no-instance'
    | 'limit-reached'
    | 'limit'
    | 'rate'
    | 'key'
    | 'order'
    | 'breaker'
    | 'throttled'
    | 'leased'
    | 'waiting';
  readonly text: string;
}

export interface TimelineEntry {
  readonly attempt: number;
  readonly status: string;
  readonly startedAt: string | null;
  readonly finishedAt: string | null;
  readonly durationMs: number | null;
  readonly instanceId?: string;
  readonly error?: { readonly name: string; readonly message: string; readonly stack?: string };
}

/** `GET api/schedules?cursor=&limit=50` */
export interface SchedulePage {
  readonly items: readonly ScheduleRow[];
  readonly next: string | null;
}

export interface ScheduleRow {
  /** Opaque id, used in actions. */
  readonly id: string;
  readonly name: string;
  readonly key: string;
  readonly cron: string;
  readonly timezone: string;
  readonly paused: boolean;
  readonly running: boolean;
  /** The next ten runs; empty if the schedule has ended or is paused. */
  readonly next: readonly string[];
  readonly last?: TimelineEntry;
  readonly failCount: number;
  readonly error?: string;
}

/** `GET api/failures?kind=`: failed work, grouped by name and error. */
export interface Failures {
  readonly groups: readonly FailureGroup[];
  /** Only the newest failures were read, or there were more groups than the response holds. */
  readonly partial: boolean;
}

export interface FailureGroup {
  readonly kind: WorkKind;
  readonly name: string;
  /** The message, with ids and numbers replaced by `…`. */
  readonly pattern: string;
  /** One message of the group in full; a part of it works as the filter `error`. */
  readonly example: string;
  /**
   * The part of the message that the whole group shares, for the filter `error` of the list; empty if the viewer may
   * not use it.
   */
  readonly search: string;
  readonly count: number;
  readonly firstAt: string;
  readonly lastAt: string;
}

/** `GET api/limits`: limits of the whole cluster, by kind and name. */
export interface LimitsPage {
  readonly items: readonly LimitRow[];
  /** Names of jobs that live instances run without a limit, which may get one; empty without the right `act`. */
  readonly unlimited: readonly string[];
}

export type LimitKind = 'job' | 'task' | 'documents' | 'shared';

/** A rate; `per` is a duration such as `1m`. */
export interface LimitRate {
  readonly limit: number;
  readonly per: string;
  readonly burst?: number;
}

/** Durations are texts such as `1m`. */
interface LimitBreaker {
  readonly failures: number;
  readonly within: string;
  readonly pause: string;
}

/** What holds and can be changed. Absent parts: no limit. */
export interface LimitValues {
  readonly concurrency?: number;
  readonly rate?: LimitRate;
  readonly breaker?: LimitBreaker;
  /** `ordered`: one of a key at a time, so it has no `concurrency`. */
  readonly perKey?: { readonly concurrency?: number; readonly rate?: LimitRate; readonly ordered: boolean };
}

/** The changes of `set-limit`: an absent field stays as it is, null takes a limit away. */
export interface LimitChanges {
  readonly concurrency?: number | null;
  readonly rate?: LimitRate | null;
  readonly breaker?: LimitBreaker | null;
  readonly perKey?: { readonly concurrency?: number | null; readonly rate?: LimitRate | null };
}

export interface LimitRow {
  readonly kind: LimitKind;
  readonly name: string;
  readonly limits: LimitValues;
  /** All limits in words, with the shared ones that its work needs as well. */
  readonly text: string;
  readonly use: { readonly running?: number; readonly startsInWindow: number; readonly waiting: number };
  /** If an operator changed it: when, and what the code says, in words. */
  readonly set?: { readonly at: string | null; readonly code: string };
  /** A live instance whose code defines it differently, in words. */
  readonly differs?: { readonly text: string; readonly by: string };
  /** Absent without a breaker. `until`: when an open one lets one start through. */
  readonly breaker?: { readonly state: 'closed' | 'open' | 'trial'; readonly until: string | null };
  /** With limits per key, while something waits: the keys that have waited longest. */
  readonly keys?: readonly KeyRow[];
  readonly actions: readonly Action[];
}

export interface KeyRow {
  /** A key may name a customer: `[redacted]` without the right `payload`. */
  readonly key: string;
  readonly running: number;
  /** Due and waiting; counting stops at 1,000. */
  readonly due: number;
  readonly dueSince: string | null;
  /** When its rate lets the next start through; null: now. */
  readonly freeAt: string | null;
}

/** `GET api/audit?cursor=&limit=50` */
export interface AuditPage {
  readonly items: readonly AuditRow[];
  readonly next: string | null;
}

export interface AuditRow {
  readonly at: string;
  /** The actor, as `authorize` named it. */
  readonly actor: string;
  readonly action: string;
  /** What the action affected, in words. */
  readonly target: string;
  readonly outcome: string;
}

export type Action =
  | 'retry'
  | 'cancel'
  | 'remove'
  | 'run-now'
  | 'pause'
  | 'resume'
  | 'reconcile'
  | 'forget'
  | 'set-limit'
  | 'reset-limit'
  | 'open-breaker'
  | 'close-breaker';

/** The work that an action is for: single items by `ids`, or everything that `query` matches. */
export interface Target {
  readonly kind: WorkKind;
  readonly ids?: readonly string[];
  /** The query string of the list, without cursor, limit and sort. An empty string selects everything of the kind. */
  readonly query?: string;
}

/** `POST api/count` with a Target and, optionally, the intended `action`: how many items it would affect. */
export interface Count {
  readonly count: number;
  /** Whether `count` is a lower bound. */
  readonly capped: boolean;
  /**
   * When the items were counted, by the store's clock. Sent back with the action, it excludes items that changed
   * later.
   */
  readonly asOf: string;
}

/**
 * `POST api/actions` `{ action: 'retry' | 'cancel' | 'remove', target, expected?, asOf? }`: runs in batches, in the
 * background.
 */
export interface Operation {
  readonly id: string;
  readonly action: Action;
  readonly state: 'running' | 'done' | 'failed' | 'stopped';
  readonly done: number;
  /** The count before it began; null if that was beyond the limit of counting. */
  readonly total: number | null;
  readonly error?: string;
}
// `GET api/operations/<id>` returns the operation again and can be followed live; `POST api/operations/<id>/stop`
// stops it.

/**
 * `POST api/act` `{ action, kind, id, data? }`: acts on one piece of work and returns the outcome. `data` is for a retry
 * of a job, and requires the right `payload`: the payload as it was shown, edited. What was not changed in it stays as it
 * is stored, hidden values included.
 */
export interface ActAnswer {
  /** Such as `retried`, `live`, `cancelled`, `requested`, `finished`, `removed`, `running`, `missing`. */
  readonly outcome: string;
  readonly message: string;
}
// `POST api/names` `{ action: 'pause' | 'resume' | 'reconcile' | 'forget', kind, name }` and
// `POST api/schedules` `{ action: 'run-now' | 'pause' | 'resume' | 'remove', id }` return an ActAnswer too. So do
// `POST api/everything` `{ action: 'pause' | 'resume' }`, for all work of the cluster, and
// `POST api/limits` `{ action: 'set-limit' | 'reset-limit' | 'open-breaker' | 'close-breaker', kind, name, changes? }`.
