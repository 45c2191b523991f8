/** How each kind of work looks in a list. */
import type { AuditEntry, FoundDocument, FoundTask, Job, MillInstance, Schedule } from '../../index.js';
import { idText } from '../../mill/tools.js';
import { bar } from './progress.js';
import type { Column } from './table.js';
import type { Style } from './text.js';
import { relative, span } from './time.js';

const STYLES: Readonly<Record<string, Style>> = {
  completed: 'green',
  failed: 'red',
  processing: 'cyan',
  processing_dirty: 'cyan',
  cancelled: 'dim',
  paused: 'yellow',
  due: 'cyan',
  parked: 'dim',
};
export const styleOf = (status: string): Style | undefined => STYLES[status];

const when = (at: Date | null | undefined): string => (at instanceof Date ? relative(at, Date.now(), 1) : '');
const firstLine = (text: string | undefined): string => text?.split('\n')[0] ?? '';

/** A share from 0 to 1, or a number up to 100, as a bar; anything else as JSON. */
export function progressText(progress: unknown): string {
  if (progress === undefined || progress === null) return '';
  if (typeof progress !== 'number') return JSON.stringify(progress);
  const share = progress <= 1 ? progress : progress / 100;
  return `${bar(share, 10)} ${String(Math.round(share * 100))} %`;
}

/** How often it failed, if more than once. */
const times = (count: number): string => (count > 1 ? `${String(count)}x ` : '');

function jobNote({
  status,
  failReason,
  progress,
  cancelRequestedAt,
  repeatInterval,
  claimedBy,
  failCount,
}: Job): string {
  if (cancelRequestedAt !== undefined && status === 'processing') return 'stop requested';
  if (status === 'processing')
    return [progressText(progress), `on ${claimedBy ?? '?'}`].filter((part) => part !== '').join(' ');
  if (status !== 'completed' && failReason !== undefined)
    return `${times(failCount)}${firstLine(failReason)}`;
  if (repeatInterval === undefined) return '';
  return repeatInterval.startsWith('@') ? repeatInterval.slice(1) : `cron ${repeatInterval}`;
}

/** The time that matters: when the job is due, since when it runs, or when it ended. */
function jobTime({ status, nextRunAt, lockedAt, finishedAt, paused }: Job): string {
  if (paused === true) return 'paused';
  if (status === 'pending') return nextRunAt.getTime() <= Date.now() ? 'due now' : when(nextRunAt);
  return when(status === 'processing' ? lockedAt : finishedAt);
}

export const JOB_COLUMNS: readonly Column<Job>[] = [
  { head: 'ID', text: ({ id }) => id },
  { head: 'NAME', text: ({ name }) => name },
  { head: 'STATUS', text: ({ status }) => status, style: ({ status }) => styleOf(status) },
  { head: 'WHEN', text: jobTime },
  { head: 'NOTE', text: jobNote, grows: true, style: ({ status }) => (status === 'failed' ? 'red' : 'dim') },
];

const taskTime = ({ status, scheduledAt, lockedAt, lastFinalizedAt }: FoundTask): string => {
  if (status === 'pending') return scheduledAt.getTime() <= Date.now() ? 'due now' : when(scheduledAt);
  return when(status.startsWith('processing') ? lockedAt : lastFinalizedAt);
};

export const TASK_COLUMNS: readonly Column<FoundTask>[] = [
  { head: 'TASK', text: ({ task }) => task },
  { head: 'DOCUMENT', text: ({ sourceDocId }) => idText(sourceDocId) },
  { head: 'STATUS', text: ({ status }) => status, style: ({ status }) => styleOf(status) },
  { head: 'WHEN', text: taskTime },
  { head: 'TRIES', text: ({ attempts }) => (attempts === 0 ? '' : String(attempts)), align: 'right' },
  {
    head: 'NOTE',
    text: ({ status, lastError, claimedBy }) =>
      status.startsWith('processing')
        ? `on ${claimedBy ?? '?'}`
        : status === 'completed'
          ? ''
          : firstLine(lastError),
    grows: true,
    style: ({ status }) => (status === 'failed' ? 'red' : 'dim'),
  },
];

const scheduleState = ({ paused, status }: Schedule): string =>
  paused ? 'paused' : status === 'processing' ? 'running' : status;

export const SCHEDULE_COLUMNS: readonly Column<Schedule>[] = [
  { head: 'NAME', text: ({ name }) => name },
  { head: 'KEY', text: ({ name, uniqueKey }) => (uniqueKey === name ? '' : uniqueKey) },
  { head: 'CRON', text: ({ cron }) => cron },
  { head: 'ZONE', text: ({ timezone }) => timezone },
  { head: 'STATE', text: scheduleState, style: (schedule) => styleOf(scheduleState(schedule)) },
  { head: 'NEXT', text: ({ nextRunAt }) => when(nextRunAt) },
  { head: 'LAST FAILURE', text: ({ failReason }) => firstLine(failReason), grows: true, style: () => 'red' },
];

export const DOCUMENT_COLUMNS: readonly Column<FoundDocument>[] = [
  { head: 'DOCUMENT', text: ({ title }) => title },
  { head: 'STATE', text: ({ state }) => state, style: ({ state }) => styleOf(state) },
  { head: 'DUE', text: ({ sleepUntil }) => when(sleepUntil) },
  { head: 'INTERVAL', text: ({ interval }) => interval ?? 'once' },
  {
    head: 'FAILED',
    text: ({ failure }) => (failure ? `${String(failure.count)}x` : ''),
    align: 'right',
  },
  { head: 'NOTE', text: ({ failure }) => firstLine(failure?.reason), grows: true, style: () => 'red' },
];

export const INSTANCE_COLUMNS: readonly Column<MillInstance>[] = [
  { head: 'INSTANCE', text: ({ instanceId }) => instanceId },
  {
    head: 'STATE',
    text: ({ alive }) => (alive ? 'alive' : 'dead'),
    style: ({ alive }) => (alive ? 'green' : 'red'),
  },
  { head: 'LEASE', text: ({ alive, leaseLeftMs }) => (alive ? span(leaseLeftMs) : 'over') },
  { head: 'PLANS', text: ({ leader }) => (leader ? 'leads' : '') },
  { head: 'HOST', text: ({ host, pid }) => `${host}:${String(pid)}` },
  {
    head: 'RUNS',
    text: ({ names, tasks }) => [...names, ...tasks].join(', '),
    grows: true,
    style: () => 'dim',
  },
];

export const AUDIT_COLUMNS: readonly Column<AuditEntry>[] = [
  { head: 'WHEN', text: ({ at }) => at.toISOString() },
  { head: 'WHO', text: ({ actor }) => actor },
  { head: 'ACTION', text: ({ action }) => action },
  { head: 'TARGET', text: ({ target }) => target, grows: true },
  {
    head: 'OUTCOME',
    text: ({ outcome }) => outcome,
    style: ({ outcome }) => (outcome.includes('end unknown') ? 'yellow' : undefined),
  },
];
