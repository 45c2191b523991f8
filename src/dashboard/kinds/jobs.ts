import type { Job, JobsFilter, JobStatus } from '../../index.js';
import { scheduleId } from '../../mill/tools.js';
import { iso, may, offered, present, whyOf, type RequestContext } from '../request-context.js';
import type { ActAnswer, Action, WorkDetail, WorkItem } from '../contract.js';
import { countShown, eachShown, searched, type Search } from '../pages/error-search.js';
import { badRequest, conflict, notFound } from '../http/errors.js';
import { factsOf } from '../pages/facts.js';
import type { Chosen, Kind } from './kind.js';
import type { TimeField, WorkFilter } from '../http/parameters.js';
import { applyEdit, versionsOf } from '../redaction/edit.js';
import { REDACTED } from '../redaction/redact-text.js';
import { idOf, placesOf, refOf } from '../redaction/reference.js';
import { Seal } from '../redaction/seal.js';
import { timelineOf } from '../pages/timeline.js';

const FIELD: Readonly<Record<TimeField, 'createdAt' | 'updatedAt' | 'nextRunAt'>> = {
  createdAt: 'createdAt',
  updatedAt: 'updatedAt',
  dueAt: 'nextRunAt',
};

/** A paused schedule is due at the end of the year 9999. */
const LAST_YEAR = 9999;

function toFilter({ name, status, error, fields, time, from, to }: WorkFilter): JobsFilter {
  return {
    ...(name.length === 0 ? {} : { name }),
    ...(status.length === 0 ? {} : { status: status as readonly JobStatus[] }),
    ...(error === undefined ? {} : { error }),
    ...(Object.keys(fields).length === 0 ? {} : { data: fields }),
    ...(from === undefined && to === undefined ? {} : { [FIELD[time]]: present({ from, to }) }),
  };
}

const searchOf = (
  { mill }: RequestContext,
  filter: JobsFilter,
  sort: Partial<Record<'createdAt' | 'updatedAt' | 'nextRunAt', 1 | -1>> = { createdAt: -1 },
): Search<Job> => ({
  error: filter.error,
  textOf: ({ failReason }) => failReason,
  find: (page) => mill.jobs.find(filter, { ...page, sort }),
});

const isRunning = ({ status }: Job): boolean => status === 'processing';
const isPending = ({ status }: Job): boolean => status === 'pending';

/**
 * Callers can choose their own ids. The id of a schedule contains its key, which counts as data unless it equals the
 * name.
 */
function shownId(context: RequestContext, { name }: Job, id: string): string {
  const own = scheduleId(name, '');
  const [key] = id.slice(own.length).split('@');
  const isData = id.startsWith(own) && key !== encodeURIComponent(name);
  return isData && !may(context, 'payload') ? `${own}${REDACTED}` : context.redactor.text(id);
}

function toItem(context: RequestContext, job: Job): WorkItem {
  const { redactor, seal } = context;
  const ref = refOf(job.id);
  const title = shownId(context, job, job.id);
  const due = isPending(job) && job.nextRunAt.getUTCFullYear() < LAST_YEAR ? job.nextRunAt : null;
  const ended = job.status === 'completed' || isRunning(job) ? 1 : 0;
  const shown = typeof job.progress === 'number' || may(context, 'payload');
  return {
    kind: 'jobs',
    id: title === job.id ? ref : seal.close(ref),
    title,
    name: redactor.text(job.name),
    status: job.status,
    dueAt: iso(due),
    createdAt: iso(job.createdAt),
    updatedAt: iso(job.updatedAt),
    attempts: job.failCount + ended,
    ...present({
      error: job.failReason === undefined ? undefined : redactor.text(job.failReason),
      progress: shown ? redactor.value(job.progress) : undefined,
      claimedBy: isRunning(job) ? job.claimedBy : undefined,
      recurring: job.repeatInterval === undefined ? undefined : true,
    }),
  };
}

/** The actions that make sense in the job's state. Schedules have their own page. */
function actionsOf(job: Job): readonly Action[] {
  if (job.repeatInterval !== undefined) return isRunning(job) ? ['cancel'] : [];
  switch (job.status) {
    case 'pending':
      return ['run-now', 'cancel', 'remove'];
    case 'processing':
      return ['cancel'];
    case 'completed':
      return ['remove'];
    default:
      return ['retry', 'remove'];
  }
}

/** Beyond this size some of a payload is not shown, so that an edit of it would lose that. */
const LARGEST_EDIT = 20_000;

function isEditable(context: RequestContext, job: Job): boolean {
  const rights = may(context, 'payload') && may(context, 'act');
  return rights && actionsOf(job).includes('retry') && JSON.stringify(job.data).length <= LARGEST_EDIT;
}

/** The payload that an edit of the shown one means, and both versions for the audit log. */
export async function editedPayload(
  context: RequestContext,
  ref: string,
  edited: unknown,
): Promise<{ readonly data: unknown; readonly versions: object }> {
  const job = await context.mill.jobs.get(idOf(ref));
  if (job === undefined) throw notFound('The job does not exist, or was deleted.');
  if (!isEditable(context, job))
    throw conflict('The payload cannot be edited here: the job has not failed, or the payload is too large.');
  const hide = (value: unknown): unknown => context.redactor.value(value);
  const data = applyEdit(job.data, hide(job.data), edited);
  return { data, versions: versionsOf(job.data, data, hide) };
}

async function detail(context: RequestContext, ref: string): Promise<WorkDetail> {
  const { mill, redactor } = context;
  const job = await mill.jobs.get(idOf(ref));
  if (job === undefined) throw notFound('The job does not exist, or was deleted.');
  const running = isRunning(job)
    ? { attempt: job.failCount + 1, since: job.lockedAt, by: job.claimedBy }
    : null;
  const data = may(context, 'payload');
  return {
    ...toItem(context, job),
    why: isRunning(job) || isPending(job) ? await whyOf(context, { kind: 'jobs', id: job.id }) : [],
    actions: offered(context, actionsOf(job)),
    timeline: timelineOf(job.history, running, redactor),
    facts: factsOf({
      priority: job.priority,
      'unique key': data && job.uniqueKey !== undefined ? redactor.text(job.uniqueKey) : undefined,
      'limit key': data && job.limitKey !== undefined ? redactor.text(job.limitKey) : undefined,
      'must start by': job.startBy,
      'cancel requested': job.cancelRequestedAt,
      finished: job.finishedAt,
      'last heartbeat': job.lastHeartbeat,
      'timeout (ms)': job.timeoutMs,
      cron: job.repeatInterval,
      zone: job.timezone,
      'scheduled for': job.scheduledFor,
    }),
    hidden: !data,
    editable: isEditable(context, job),
    ...(data
      ? {
          payload: redactor.value(job.data),
          ...present({
            result: redactor.value(job.result),
            logs: job.logs?.map(({ at, message, fields }) => ({
              at: at.toISOString(),
              message: redactor.text(message),
              ...present({ fields: redactor.value(fields) }),
            })),
          }),
        }
      : {}),
    ...(job.scheduleId === undefined ? {} : { scheduleId: shownId(context, job, job.scheduleId) }),
  };
}

const SAID: Readonly<Record<string, string>> = {
  retried: 'The job is due now, with a fresh sequence of attempts.',
  live: 'Not retried: another job with the same unique key is pending or running.',
  unfinished: 'Not retried: the job has not ended yet.',
  finished: 'The job has already ended.',
  cancelled: 'The job is cancelled.',
  requested: 'The handler was told to stop.',
  removed: 'The job was deleted.',
  running: 'The job is running, so it was left alone.',
  rescheduled: 'The job is due now.',
  missing: 'The job no longer exists.',
};

const said = ({ outcome }: { readonly outcome: string }): ActAnswer => ({
  outcome,
  message: SAID[outcome] ?? outcome,
});

async function act(
  { mill }: RequestContext,
  action: Action,
  ref: string,
  replacement?: { readonly data: unknown },
): Promise<ActAnswer> {
  const id = idOf(ref);
  switch (action) {
    case 'retry':
      return said(await mill.jobs.retry(id, replacement));
    case 'cancel':
      return said(await mill.jobs.cancel(id));
    case 'remove':
      return said(await mill.jobs.remove(id));
    case 'run-now':
      return said(await mill.jobs.reschedule(id, 0));
    default:
      throw badRequest(`Jobs have no action "${action}".`);
  }
}

/** The states that each action affects. */
const TOUCHED: Readonly<Partial<Record<Action, readonly JobStatus[]>>> = {
  retry: ['failed', 'cancelled'],
  cancel: ['pending', 'processing'],
  remove: ['pending', 'completed', 'failed', 'cancelled'],
};

const chosenFilter = (chosen: Chosen): JobsFilter =>
  'ids' in chosen ? { ids: chosen.ids.map(idOf) } : toFilter(chosen.filter);

/** Returns null if no state that the filter allows is affected by the action. */
function touched(chosen: Chosen, action: Action | undefined): JobsFilter | null {
  const filter = chosenFilter(chosen);
  const states = action === undefined ? undefined : TOUCHED[action];
  if (states === undefined) return filter;
  const asked = filter.status as readonly JobStatus[] | undefined;
  const status = asked === undefined ? states : states.filter((one) => asked.includes(one));
  return status.length === 0 ? null : { ...filter, status };
}

export const jobs: Kind = {
  bulk: ['retry', 'cancel', 'remove'],
  nameActions: ['pause', 'resume'],
  detail,
  act,
  title: (ref) => `job ${idOf(ref)}`,
  hidesKeys: () => Promise.resolve(false),
  find: async (context, query) => {
    const { sort = 'createdAt', order } = query;
    const page = await searched(context, searchOf(context, toFilter(query), { [FIELD[sort]]: order }), query);
    const items = page.items.map((job) => toItem(context, job));
    // A cursor contains the id of a row.
    const hidden = items.some(({ id }) => Seal.isClosed(id));
    return {
      items,
      ...placesOf(context, query, page, hidden),
      partial: page.partial === true,
    };
  },
  count: async (context, chosen, action, limit) => {
    const filter = touched(chosen, action);
    if (filter === null) return 0;
    return filter.error === undefined
      ? context.mill.jobs.count(filter, { limit })
      : countShown(context, searchOf(context, filter), limit);
  },
  many: async (context, { action, chosen, asOf, signal, progress }) => {
    const filter = touched(chosen, action);
    if (filter === null) return 0;
    const { from, to } = filter.updatedAt ?? {};
    const until = to !== undefined && to < asOf ? to : asOf;
    const bounded = { ...filter, updatedAt: { ...present({ from }), to: until } };
    const call = { retry: 'retryMany', cancel: 'cancelMany', remove: 'removeMany' } as const;
    const act = async (of: JobsFilter, before: number): Promise<number> => {
      const options = { signal, onProgress: (count: number) => progress(before + count) };
      return (await context.mill.jobs[call[action as keyof typeof call]](of, options)).count;
    };
    if (bounded.error === undefined) return act(bounded, 0);
    // Only jobs whose visible error text matches. Each write checks again that the job is unchanged.
    let count = 0;
    for await (const found of eachShown(context, searchOf(context, bounded))) {
      if (signal.aborted) break;
      if (found.length > 0) count += await act({ ...bounded, ids: found.map(({ id }) => id) }, count);
    }
    return count;
  },
};
