/**
 * Stores load what enqueuing does not need on the first call (docs/adr/0021-weight.md). Here are the methods of the
 * ports that can wait for that: those that return promises.
 */
import { lazily, type Lazy } from '../core/lazily.js';

/** The parts of one store. */
export class Parts {
  readonly #all: Lazy<unknown>[] = [];

  add<P>(load: () => Promise<P>): Lazy<P> {
    const lazy = lazily(load);
    this.#all.push(lazy);
    return lazy;
  }

  /** Loads all of them. */
  async load(): Promise<void> {
    await Promise.all(this.#all.map((load) => load()));
  }
}

export const LOCK_METHODS = ['acquire', 'renew', 'release'] as const;

/** Without `repairKeys`, which not every store has. */
export const LIMIT_METHODS = [
  'exchange',
  'read',
  'revision',
  'define',
  'drop',
  'turnBreaker',
  'keys',
] as const;

export const AUDIT_METHODS = ['append', 'amend', 'get', 'list'] as const;

export const METRICS_METHODS = [
  'push',
  'read',
  'leave',
  'saveMinutes',
  'saveWaiting',
  'series',
  'forget',
] as const;

export const INSTANCE_METHODS = [
  'register',
  'renew',
  'deregister',
  'list',
  'describe',
  'fence',
  'bury',
] as const;

/** Of jobs and tasks alike. */
export const WORK_METHODS = [
  'peek',
  'claim',
  'claimedUnder',
  'settle',
  'settleIn',
  'held',
  'settledUnder',
  'begin',
  'heldBy',
  'strays',
  'depths',
] as const;

/** Beside `WORK_METHODS`. Left out are `newId` and the inserts, of which enqueuing consists. */
export const JOB_METHODS = [
  'heldIn',
  'note',
  'cancelRequests',
  'insertFailedRun',
  'get',
  'ends',
  'find',
  'count',
  'stats',
  'failures',
  'cancel',
  'retry',
  'remove',
  'reschedule',
  'cancelBatch',
  'retryBatch',
  'removeBatch',
  'putSchedule',
  'schedules',
  'schedule',
  'removeSchedule',
  'pauseSchedule',
  'runScheduleNow',
  'pauseName',
  'resumeName',
  'isPaused',
  'isHeldUp',
] as const;

/** Of stores that can replace, change and expire pending jobs. */
export const REPLACING_METHODS = ['update', 'expire', 'releaseSuccessors'] as const;

/** Beside `WORK_METHODS` and `PAUSE_METHODS`. */
export const TASK_METHODS = [
  'fetch',
  'fetchAll',
  'find',
  'count',
  'retryMany',
  'stats',
  'failures',
  'document',
] as const;

export const PAUSE_METHODS = ['pauses', 'pause', 'resume'] as const;

export const PLAN_METHODS = [
  'plan',
  'unmatch',
  'park',
  'documents',
  'size',
  'known',
  'clean',
  'reprocess',
  'openFeed',
] as const;

export const PLANNER_METHODS = [
  'publish',
  'plans',
  'states',
  'saveState',
  'lead',
  'resign',
  'load',
  'saveTokens',
  'checkpoint',
  'saveCheckpoint',
  'blocked',
  'saveBlocked',
  'request',
  'notifyPeers',
] as const;

export const PARTITIONING_METHODS = ['leaders', 'announce', 'divide'] as const;

export const DOCUMENT_METHODS = [
  'lockNext',
  'lockMany',
  'current',
  'update',
  'remove',
  'settle',
  'renew',
  'look',
  'count',
  'find',
] as const;

export const FORGETTING_METHODS = ['retire', 'deleteRecords', 'deleteDefinitions'] as const;
