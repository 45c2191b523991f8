/** How what is stored here is named. The take-over writes it, too. */

/**
 * The task collection of a source. mongodash has `orders_tasks`, whose unique index on (sourceDocId, task) would refuse
 * ours; so both can be there while data is taken over.
 */
export const tasksCollectionOf = (collection: string): string => `${collection}_tidemill_tasks`;

/** The payload of a cron task's schedule. */
export interface CronState {
  readonly lastRun: {
    readonly startedAt: Date;
    readonly finishedAt: Date;
    readonly error: string | null;
  } | null;
  /** Set on a schedule that was taken over from mongodash: its next run stays, whatever the interval says. */
  readonly takenOver?: boolean;
  /** Stays on what was taken over, so that a repeated take-over knows it: the `runSince` that mongodash had then. */
  readonly mongodash?: { readonly dueAt: Date };
}

/** The unique key of a run that was asked for. */
export const IMMEDIATELY = 'immediately';

/** The id of the run for which a cron task that was taken over was due: one id, so it is asked for once. */
export const takenOverId = (taskId: string, dueAt: Date): string =>
  `mongodash ${taskId} ${dueAt.toISOString()}`;
