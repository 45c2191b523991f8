/** All metrics. A test keeps docs/metrics.md and the Grafana dashboards in step with this catalogue. */
export interface MetricInfo {
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly labels: readonly string[];
  readonly help: string;
}

const WORK = ['kind', 'name'];

export const CATALOGUE: Readonly<Record<string, MetricInfo>> = {
  reactive_tasks_duration_seconds: {
    type: 'histogram',
    labels: ['task_name', 'status'],
    help: 'How long attempts of reactive tasks took (status: success or failure)',
  },
  reactive_tasks_retries_total: {
    type: 'counter',
    labels: ['task_name'],
    help: 'Failed attempts of reactive tasks that are retried',
  },
  reactive_tasks_queue_depth: {
    type: 'gauge',
    labels: ['task_name', 'status'],
    help: 'Reactive tasks by status: pending, processing, processing_dirty, failed',
  },
  reactive_tasks_global_lag_seconds: {
    type: 'gauge',
    labels: ['task_name'],
    help: 'How long the oldest pending reactive task has been waiting, including deferrals',
  },
  reactive_tasks_change_stream_lag_seconds: {
    type: 'gauge',
    labels: [],
    help: 'How long the oldest change that is not planned yet has been waiting',
  },
  reactive_tasks_last_reconciliation_timestamp_seconds: {
    type: 'gauge',
    labels: [],
    help: 'When a source was last reconciled, in seconds since 1970',
  },
  tidemill_duration_seconds: {
    type: 'histogram',
    labels: [...WORK, 'status'],
    help: 'How long attempts took (status: success or failure)',
  },
  tidemill_wait_seconds: {
    type: 'histogram',
    labels: WORK,
    help: 'How long work had been due when its handler was called',
  },
  tidemill_attempts_total: {
    type: 'counter',
    labels: [...WORK, 'outcome'],
    help: 'Attempts whose outcome was recorded: completed, retried, failed, skipped, deferred, cancelled, released, expired',
  },
  tidemill_enqueued_total: { type: 'counter', labels: ['name'], help: 'Jobs that were accepted' },
  tidemill_lost_total: {
    type: 'counter',
    labels: WORK,
    help: 'Attempts whose outcome was refused, because another instance had the work by then, or it was gone',
  },
  tidemill_reclaimed_total: {
    type: 'counter',
    labels: WORK,
    help: 'Work of dead processes that was handed on',
  },
  tidemill_leases_lost_total: {
    type: 'counter',
    labels: [],
    help: 'How often an instance lost its lease, and with it the work that it ran',
  },
  tidemill_queue_depth: {
    type: 'gauge',
    labels: [...WORK, 'status'],
    help: 'Work by status; due is the part of pending that could start now',
  },
  tidemill_lag_seconds: {
    type: 'gauge',
    labels: WORK,
    help: 'How long the work that has waited longest has been due',
  },
  tidemill_limit_starts_total: {
    type: 'counter',
    labels: WORK,
    help: 'Work that started and counts against a limit',
  },
  tidemill_limit_held_up_total: {
    type: 'counter',
    labels: [...WORK, 'by'],
    help: 'Claims that got less of a limit than they wanted, by what refused it: concurrency, rate, breaker, key',
  },
  tidemill_limit_running: {
    type: 'gauge',
    labels: WORK,
    help: 'Work that runs under a limit, or is about to',
  },
  tidemill_limit_capacity: {
    type: 'gauge',
    labels: WORK,
    help: 'How much a limit lets run at once',
  },
  tidemill_limit_window_starts: {
    type: 'gauge',
    labels: WORK,
    help: 'Starts that count against the rate of a limit now',
  },
  tidemill_limit_window_capacity: {
    type: 'gauge',
    labels: WORK,
    help: 'How many starts the rate of a limit allows in its window',
  },
  tidemill_limit_waiting: {
    type: 'gauge',
    labels: WORK,
    help: 'Due work under a limit that has not started',
  },
  tidemill_limit_breaker_state: {
    type: 'gauge',
    labels: [...WORK, 'state'],
    help: '1 for the state that the breaker of a limit has, 0 for the others: closed, open, trial',
  },
  tidemill_instances: { type: 'gauge', labels: [], help: 'Instances whose lease is valid' },
  tidemill_running: { type: 'gauge', labels: [], help: 'Handlers that are running' },
  tidemill_buffered: { type: 'gauge', labels: [], help: 'Work that was claimed ahead and waits for a slot' },
  tidemill_abandoned: {
    type: 'gauge',
    labels: [],
    help: 'Handlers that run past their timeout and ignore their signal',
  },
  tidemill_wake_up: {
    type: 'gauge',
    labels: ['mode'],
    help: 'Instances by how they learn of new work: stream, direct or poll',
  },
  tidemill_planner_leaders: {
    type: 'gauge',
    labels: [],
    help: 'Instances that plan reactive tasks: 1, or 0 if none does',
  },
  tidemill_planned_changes_total: { type: 'counter', labels: [], help: 'Data changes that were planned' },
  tidemill_planned_batches_total: {
    type: 'counter',
    labels: [],
    help: 'Batches in which data changes were planned',
  },
  tidemill_history_headroom_seconds: {
    type: 'gauge',
    labels: [],
    help: 'How much longer planning could pause before changes are lost',
  },
  tidemill_history_lost_total: {
    type: 'counter',
    labels: [],
    help: 'How often changes were lost, and every document was reconciled',
  },
  tidemill_outbox_changes: {
    type: 'gauge',
    labels: [],
    help: 'Recorded changes of watched tables that are not planned yet, about',
  },
  tidemill_outbox_age_seconds: {
    type: 'gauge',
    labels: [],
    help: 'How long ago the oldest change in the outbox was recorded',
  },
  tidemill_outbox_stopped: {
    type: 'gauge',
    labels: [],
    help: '1 while the outbox is at its limit and changes are not recorded, otherwise 0',
  },
  tidemill_reconciliations_total: {
    type: 'counter',
    labels: [],
    help: 'How often a source was reconciled',
  },
  tidemill_set_aside_documents: {
    type: 'gauge',
    labels: [],
    help: 'Documents that cannot be planned, because an open transaction holds their task',
  },
  tidemill_reconciliation_documents: {
    type: 'gauge',
    labels: ['collection'],
    help: 'Documents that the current reconciliation has checked so far',
  },
};
