/** The feed of changes that the leader follows, and where it stands. */
import { TidemillError, type TidemillErrorOptions } from '../../core/errors.js';

/** Proof of leadership. What a leader remembers is written with its term, and refused once a later term has written. */
export interface Term {
  readonly life: string;
  readonly term: number;
}

/** How far a reconciliation of one source has come. */
export interface Checkpoint {
  /** Tasks, triggers and requests that it is for, as texts; the leader begins anew if they differ. */
  readonly tasks: readonly string[];
  readonly phase: 'documents' | 'tasks';
  /** `IdPage.after` of the last page: text of the store's own. */
  readonly after?: string;
  readonly processed: number;
}

/** One change of a watched document: its id, and never its content. */
export interface Change {
  readonly collection: string;
  /** The document's id, as the store reads it; `plan` and `unmatch` get it back. */
  readonly id: unknown;
  /** The same as text: equal for equal ids. */
  readonly key: string;
  /** `insert`: the document was not there before, so it cannot have stopped matching. */
  readonly kind: 'insert' | 'update' | 'delete';
}

/** What a feed brings, in order. `token` is the resume point just after the event. */
export type FeedEvent =
  /** `at`: when the document was changed, by the server's clock. */
  | { readonly kind: 'change'; readonly change: Change; readonly token: unknown; readonly at: Date }
  /** A collection was dropped, renamed, altered, or came by renaming: the leader prepares and reconciles its tasks. */
  | { readonly kind: 'upheaval'; readonly collections: readonly string[] | 'all'; readonly token: unknown };

/** The history does not reach back to the resume point: only a reconciliation finds what was missed. */
export class HistoryLostError extends TidemillError {
  static override readonly brand: string = 'HistoryLostError';
  constructor(message: string, options?: TidemillErrorOptions) {
    super('HISTORY_LOST', message, options);
  }
}

/** Changes of one database, from a resume point on. */
export interface Feed {
  /**
   * Returns the next event; waits for as long as nothing happens. A call also says that the event before has arrived:
   * only then may `token` pass it. One call at a time.
   * Errors: a `HistoryLostError` if changes were missed for good, any other if the feed broke or was closed. The
   * follower opens another feed from the last resume point, so the same events may come again.
   */
  next(): Promise<FeedEvent>;
  /**
   * The newest resume point before which every event has arrived; it moves on while nothing happens. Undefined if the
   * feed began in the past and has not come to an event yet.
   */
  readonly token: unknown;
  /** Ends the feed; a `next` that waits rejects. Repeat: no effect. */
  close(): Promise<void>;
}

/** Which changes to follow, and from where. */
export interface FeedRequest {
  /** Undefined: the store's own. */
  readonly database: string | undefined;
  readonly collections: readonly string[];
  /** The resume point, as `load` or an event had it; undefined: from now on. */
  readonly token: unknown;
  /**
   * `PublishedPlan.since` of tasks that are new. A store goes back to the earliest of these that is before `token` and
   * that its history still has; the rest is left to reconciliation. A store without such points ignores it.
   */
  readonly since?: readonly unknown[];
  /** Who follows. A store that tells writers to wake the leader refuses that once a later term leads. */
  readonly term: Term;
}

/** Changes that the store recorded and the leader has not planned yet. */
export interface Outbox {
  /** About how many there are, at most. */
  readonly changes: number;
  /** How long ago the oldest was recorded; 0 if there is none. */
  readonly ageMs: number;
  /** Beyond about this many, changes are not recorded. */
  readonly limit: number;
  /** True while changes are not recorded. */
  readonly stopped: boolean;
  /** True if changes were not recorded, and the reconciliation that finds them has not been requested yet. */
  readonly missed: boolean;
}
