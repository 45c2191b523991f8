/** Recurring jobs: one record each, found by name and key. */
import type { JobRecord, MissedPolicy } from '../../core/records/job.js';

/** A schedule as `putSchedule` is to leave it. `cron`, `timezone`, `startAt` and `repeatUntil` are its times. */
export interface ScheduleChange {
  readonly name: string;
  /** With the name, it identifies the schedule: its id is `scheduleId(name, key)`. Unrelated to unique keys of jobs. */
  readonly key: string;
  readonly data: unknown;
  /** Stored as `repeatInterval`. */
  readonly cron: string;
  readonly timezone: string;
  readonly startAt?: Date;
  readonly repeatUntil?: Date;
  readonly missed: MissedPolicy;
  readonly priority: number;
  /** As `NewJob.limitKey`. Runs of schedules have no `limitOrder`. */
  readonly limitKey?: string;
  readonly retryPolicy?: unknown;
  readonly timeoutMs?: number;
  /** The first run by the new times; `putSchedule` says when it counts. */
  readonly firstRunAt: Date;
  /** The caller's estimate of the server's time. */
  readonly now: Date;
}

/** What `mill.schedule` and `mill.schedules` ask of a store. */
export interface ScheduleStore {
  /**
   * Creates or changes a schedule, in one upsert by `scheduleId(name, key)`; the precondition is in its branches:
   *
   * | before | after |
   * |---|---|
   * | none, or ended | `pending`, due at `firstRunAt`, not paused, `failCount` 0 |
   * | `pending`, not paused, other times | `pending`, due at `firstRunAt`, `failCount` 0 |
   * | any other difference | the new fields; state, lease, due time and pause stay |
   * | no difference | as it was |
   *
   * A change raises `scheduleRev`: the settlement of a run in progress then is `changed`. Wakes instances.
   * Returns the schedule as it is then. Repeat: no effect. Errors: `outcomeUnknown`, as `insert`.
   */
  putSchedule(change: ScheduleChange): Promise<JobRecord>;
  /** Returns all schedules, ended ones included, or those of one name, by name and key. Repeat: safe. */
  schedules(name?: string): Promise<readonly JobRecord[]>;
  /** Returns one schedule, in any state, or undefined if there is none. Repeat: safe. */
  schedule(name: string, key: string): Promise<JobRecord | undefined>;
  /**
   * Deletes a schedule: any state → gone, without a precondition. If it runs, the settlement of that run is `lost`.
   * Returns whether there was one. Repeat: false.
   */
  removeSchedule(name: string, key: string): Promise<boolean>;
  /**
   * Pauses or resumes a schedule, and raises `scheduleRev`. `pending` → the same, due at `NEVER` if `paused`, else at
   * `nextRunAt`; `processing` → the same: its settlement is `changed`, and decided again. Wakes instances.
   * Precondition: pending or processing, and not already as `paused` says.
   * Returns the schedule as it is then, changed or not; undefined: no such schedule. Repeat: no effect.
   */
  pauseSchedule(name: string, key: string, paused: boolean, nextRunAt: Date): Promise<JobRecord | undefined>;
  /**
   * Brings the next run forward, paused or not: `pending` → `pending`, due at `now`; a run that is overdue keeps its
   * time, so that missed runs still count. Wakes instances.
   * Precondition: still pending.
   * Returns `due`; `running` if a run is in progress; undefined if it has ended or does not exist. Repeat: no effect.
   */
  runScheduleNow(
    name: string,
    key: string,
    now: Date,
  ): Promise<{ outcome: 'due' | 'running'; job: JobRecord } | undefined>;
}
