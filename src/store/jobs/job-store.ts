/** The port of jobs, by role. What the engine asks of it is `WorkStore`, in work.ts. */
import type { JobRecord } from '../../core/records/job.js';
import type { FailedRun, Lease, Note, WorkStore } from '../work.js';
import type { ChangeStore } from './changes.js';
import type { EnqueueStore } from './enqueue.js';
import type { FindStore } from './find.js';
import type { ManageStore } from './manage.js';
import type { PauseStore } from './pauses.js';
import type { ScheduleStore } from './schedules.js';
import type { Settlement } from './settlement.js';

/** Everything that a store of jobs does. */
export interface JobStore<Tx = unknown>
  extends
    WorkStore<JobRecord, Settlement, Tx>,
    EnqueueStore<Tx>,
    FindStore,
    ManageStore,
    ScheduleStore,
    PauseStore {
  /**
   * As `held` for one lease, read through the caller's transaction, which may have taken the last connection.
   * Returns the record, or undefined if it is not held under its token. Repeat: safe. The driver's errors pass
   * unchanged.
   * Caller: `complete()`, after `settleIn` returned `lost`: the schedule may merely have changed.
   */
  heldIn(lease: Lease, transaction: Tx): Promise<JobRecord | undefined>;
  /** Tells of jobs that change, for `jobs.watch()`. Absent: watchers poll. */
  readonly changes?: ChangeStore;
  /** As `WorkStore.note`; every store of jobs has it. */
  note(notes: readonly Note[]): Promise<void>;
  /** As `WorkStore.cancelRequests`; every store of jobs has it. */
  cancelRequests(leases: readonly Lease[]): Promise<readonly Lease[]>;
  /** As `WorkStore.insertFailedRun`; every store of jobs has it. */
  insertFailedRun(of: JobRecord, failure: FailedRun): Promise<void>;
}
