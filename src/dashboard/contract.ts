/**
 * What the dashboard's page and its server say to each other: JSON over `fetch`, below `<basePath>/api/`. Dates are ISO
 * text. Every GET may also be followed live: `GET api/live?path=<path with its query>` answers server-sent events, each
 * the whole answer again, sent when it has changed.
 *
 * An error is `{ error: { code, message } }` with a status that fits: 400 a wrong parameter, 401 nobody, 403 not allowed,
 * 404 nothing there, 409 the state does not allow it, 500 without any detail.
 */

/** What a viewer may do. `view`: everything but data. `payload`: data, results, logs, source documents too. `act`: change. */
export type Right = 'view' | 'payload' | 'act';

export type WorkKind = 'jobs' | 'tasks' | 'documents';

/** `GET api/session` */
export interface Session {
  readonly rights: readonly Right[];
  readonly readOnly: boolean;
  /** Sent back as the header `x-tidemill-csrf` with every POST. */
  readonly csrf: string;
  /** Kind of store: `mongodb`, `postgres`, `embedded`, `memory`. */
  readonly store: string;
  /** Kinds of work that this store and this mill have. */
  readonly kinds: readonly WorkKind[];
  /** Statuses by kind, in the order in which they are shown. */
  readonly statuses: Readonly<Record<WorkKind, readonly string[]>>;
  readonly version: string;
  /** What works on everything that matches, by kind; nothing without the right `act`. */
  readonly bulk: Readonly<Record<WorkKind, readonly Action[]>>;
  /** What works on a name, by kind; nothing without the right `act`. */
  readonly nameActions: Readonly<Record<WorkKind, readonly Action[]>>;
}

/** `GET api/overview?range=15m|1h|6h|24h&kind=&name=`: with a kind or a name `series` is about it alone. */
export interface Overview {
  readonly now: string;
  readonly range: string;
  /** One point per step, oldest first; steps in which nothing happened are there too. */
  readonly series: {
    readonly stepMs: number;
    readonly from: string;
    readonly done: readonly number[];
    readonly failed: readonly number[];
    readonly retried: readonly number[];
    /** Milliseconds from due to started; null where nothing started. */
    readonly waitMs: readonly (number | null)[];
    readonly runMs: readonly (number | null)[];
    /** Work that was due and waited, where somebody measured it. */
    readonly backlog: readonly (number | null)[];
  };
  readonly names: readonly NameRow[];
  readonly instances: readonly InstanceRow[];
  readonly health: {
    readonly ok: boolean;
    readonly reasons: readonly string[];
    readonly troubles: readonly string[];
    /** How instances learn of new work. */
    readonly wakeUp?: string;
  };
  /** Reactive tasks: who plans, and how far behind the oldest pending one is. */
  readonly planner?: {
    readonly leader: string | null;
    readonly lagMs: number | null;
    readonly reconciling: readonly {
      readonly task: string;
      readonly done: number;
      /** About how many there are. */
      readonly total?: number;
    }[];
  };
}

export interface NameRow {
  readonly kind: WorkKind;
  readonly name: string;
  readonly paused: boolean;
  /** By status; `capped` names those that stand for "at least". */
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
  /** How long its lease still holds. */
  readonly leaseLeftMs: number;
}

/**
 * `GET api/work?kind=jobs&name=&status=&error=&field=<path>:<value>&from=&to=&time=createdAt|updatedAt|dueAt&sort=createdAt|updatedAt|dueAt&order=asc|desc&cursor=&limit=50`
 *
 * `name`, `status` and `field` may be repeated. `field` compares a part of the payload (jobs), of the source document (tasks)
 * or of the document itself, and needs the right `payload`. A value that reads as JSON (`5`, `true`, `"5"`) is that value,
 * any other text is itself.
 */
export interface WorkPage {
  readonly items: readonly WorkItem[];
  readonly next: string | null;
  readonly previous: string | null;
  /** The time limit was reached: there may be more. */
  readonly partial: boolean;
}

export interface WorkItem {
  readonly kind: WorkKind;
  /** Opaque text that identifies it in `api/work/<kind>/<id>`. */
  readonly id: string;
  /** The id as a person reads it: the job's, or the source document's. */
  readonly title: string;
  readonly name: string;
  readonly status: string;
  readonly dueAt: string | null;
  readonly createdAt: string | null;
  readonly updatedAt: string | null;
  readonly attempts: number;
  readonly error?: string;
  /** A number from 0 to 100, or whatever the handler gave. */
  readonly progress?: unknown;
  readonly claimedBy?: string;
  readonly recurring?: boolean;
}

/** `GET api/work/<kind>/<id>` */
export interface WorkDetail extends WorkItem {
  /** Why it is not running, each reason a sentence; empty where it runs or has ended. */
  readonly why: readonly Why[];
  readonly actions: readonly Action[];
  readonly timeline: readonly TimelineEntry[];
  /** Other fields worth a line, in order. */
  readonly facts: readonly { readonly label: string; readonly value: string }[];
  /** Absent without the right `payload`; values hidden by `redact` read `[redacted]`. */
  readonly payload?: unknown;
  readonly result?: unknown;
  readonly logs?: readonly { readonly at: string; readonly message: string; readonly fields?: unknown }[];
  /** Reactive tasks: the document as it is now; null where it is gone. */
  readonly source?: { readonly collection: string; readonly document: unknown };
  /** True where data was left out because the right is missing. */
  readonly hidden: boolean;
  readonly scheduleId?: string;
}

export interface Why {
  readonly code: 'paused' | 'not-due' | 'no-instance' | 'limit-reached' | 'throttled' | 'leased' | 'waiting';
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
  /** Identifies it in actions. */
  readonly id: string;
  readonly name: string;
  readonly key: string;
  readonly cron: string;
  readonly timezone: string;
  readonly paused: boolean;
  readonly running: boolean;
  /** The next ten runs; empty where it has ended or is paused. */
  readonly next: readonly string[];
  readonly last?: TimelineEntry;
  readonly failCount: number;
  readonly error?: string;
}

/** `GET api/failures?kind=` : failed work, grouped by name and error. */
export interface Failures {
  readonly groups: readonly FailureGroup[];
  /** Only so many of the newest were looked at. */
  readonly partial: boolean;
}

export interface FailureGroup {
  readonly kind: WorkKind;
  readonly name: string;
  /** The message, with ids and numbers taken out of it. */
  readonly pattern: string;
  /** One message in full; a part of it works as the filter `error`. */
  readonly example: string;
  /** The part of the message that all of the group share; the filter `error` of the list. */
  readonly search: string;
  readonly count: number;
  readonly firstAt: string;
  readonly lastAt: string;
}

/** `GET api/audit?cursor=&limit=50` */
export interface AuditPage {
  readonly items: readonly AuditRow[];
  readonly next: string | null;
}

export interface AuditRow {
  readonly at: string;
  /** Who, as `authorize` named them. */
  readonly actor: string;
  readonly action: string;
  /** What it was done to, in words. */
  readonly target: string;
  readonly outcome: string;
}

export type Action = 'retry' | 'cancel' | 'remove' | 'run-now' | 'pause' | 'resume' | 'reconcile';

/** What a filter of the list says, as its query has it; `ids` are those of single items. */
export interface Target {
  readonly kind: WorkKind;
  readonly ids?: readonly string[];
  /** The query text of the list, without cursor, limit and sort. An empty one means everything of the kind. */
  readonly query?: string;
}

/** `POST api/count` with a Target, and the `action` that is meant: how many it would touch. */
export interface Count {
  readonly count: number;
  /** True: at least so many. */
  readonly capped: boolean;
  /** When that was, by the store's clock. Sent back with the action, nothing that changed after it is touched. */
  readonly asOf: string;
}

/** `POST api/actions` `{ action: 'retry' | 'cancel' | 'remove', target, expected?, asOf? }` : runs in batches, in the background. */
export interface Operation {
  readonly id: string;
  readonly action: Action;
  readonly state: 'running' | 'done' | 'failed' | 'stopped';
  readonly done: number;
  /** What was counted before it began. */
  readonly total: number | null;
  readonly error?: string;
}
// `GET api/operations/<id>` answers it again (and may be followed live); `POST api/operations/<id>/stop` ends it.

/** `POST api/act` `{ action, kind, id }` for one piece of work: what came of it. */
export interface ActAnswer {
  /** Such as `retried`, `live`, `cancelled`, `requested`, `finished`, `removed`, `running`, `missing`. */
  readonly outcome: string;
  readonly message: string;
}
// `POST api/names` `{ action: 'pause' | 'resume' | 'reconcile', kind, name }` and
// `POST api/schedules` `{ action: 'run-now' | 'pause' | 'resume' | 'remove', id }` answer an ActAnswer too.
