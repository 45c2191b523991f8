/** The values of `code` in `onInfo`. */
export const CODE_CRON_TASK_STARTED = 'cronTaskStarted';
export const CODE_CRON_TASK_FINISHED = 'cronTaskFinished';
export const CODE_CRON_TASK_SCHEDULED = 'cronTaskScheduled';
export const CODE_CRON_TASK_FAILED = 'cronTaskFailed';
export const CODE_REACTIVE_TASK_INITIALIZED = 'reactiveTaskInitialized';
export const CODE_REACTIVE_TASK_STARTED = 'reactiveTaskStarted';
export const CODE_REACTIVE_TASK_FINISHED = 'reactiveTaskFinished';
export const CODE_REACTIVE_TASK_FAILED = 'reactiveTaskFailed';
export const CODE_REACTIVE_TASK_LOCK_LOST = 'reactiveTaskLockLost';
export const CODE_REACTIVE_TASK_PLANNER_STARTED = 'reactiveTaskPlannerStarted';
export const CODE_REACTIVE_TASK_PLANNER_STOPPED = 'reactiveTaskPlannerStopped';
export const CODE_REACTIVE_TASK_PLANNER_RECONCILIATION_STARTED = 'reactiveTaskPlannerReconciliationStarted';
export const CODE_REACTIVE_TASK_PLANNER_RECONCILIATION_FINISHED = 'reactiveTaskPlannerReconciliationFinished';
export const CODE_REACTIVE_TASK_PLANNER_STREAM_ERROR = 'reactiveTaskPlannerStreamError';
export const CODE_REACTIVE_TASK_LEADER_LOCK_LOST = 'reactiveTaskLeaderLockLost';
/** Never reported: such a completion stands without a message. */
export const CODE_REACTIVE_TASK_THREW_AFTER_COMPLETION = 'reactiveTaskThrewAfterCompletion';
/** Never reported: a completion always goes before a deferral. */
export const CODE_REACTIVE_TASK_DEFER_IGNORED = 'reactiveTaskDeferIgnored';
/** Never reported: metrics tell of the cleanup. */
export const CODE_REACTIVE_TASK_CLEANUP = 'reactiveTaskCleanup';
/** Never reported: there are no records of such an age. */
export const CODE_REACTIVE_TASK_LEGACY_MIGRATION = 'reactiveTaskLegacyMigration';
export const CODE_MANUAL_TRIGGER = 'manualTrigger';
