import type { FoundTask, TasksFilter, TaskStatus } from '../../index.js';
import { idText } from '../../mill/tools.js';
import { iso, may, offered, present, whyOf, type RequestContext } from '../request-context.js';
import type { Action, WorkDetail, WorkItem } from '../contract.js';
import { countShown, isShown, searched, type Search } from '../pages/error-search.js';
import { badRequest, notFound, tooLong } from '../http/errors.js';
import { factsOf } from '../pages/facts.js';
import type { Chosen, Kind, ManyRequest } from './kind.js';
import type { TimeField, WorkFilter } from '../http/parameters.js';
import { idOf, placesOf, refOf, shownKey } from '../redaction/reference.js';
import { timelineOf } from '../pages/timeline.js';

const FIELD: Readonly<Record<TimeField, 'createdAt' | 'updatedAt' | 'scheduledAt'>> = {
  createdAt: 'createdAt',
  updatedAt: 'updatedAt',
  dueAt: 'scheduledAt',
};

function toFilter({ name, status, error, fields, time, from, to }: WorkFilter): TasksFilter {
  return {
    ...(name.length === 0 ? {} : { task: name }),
    ...(status.length === 0 ? {} : { status: status as readonly TaskStatus[] }),
    ...(error === undefined ? {} : { error }),
    ...(Object.keys(fields).length === 0 ? {} : { source: fields }),
    ...(from === undefined && to === undefined ? {} : { [FIELD[time]]: present({ from, to }) }),
  };
}

type Sort = Partial<Record<'createdAt' | 'updatedAt' | 'scheduledAt', 1 | -1>>;
const DUE_DOWN: Sort = { scheduledAt: -1 };

const searchOf = ({ mill }: RequestContext, filter: TasksFilter, sort: Sort): Search<FoundTask> => ({
  error: typeof filter.error === 'string' ? filter.error : undefined,
  textOf: ({ lastError }) => lastError,
  find: (page) => mill.tasks.find(filter, { ...page, sort }),
});

const isRunning = ({ status }: FoundTask): boolean => status.startsWith('processing');

/** A key of several columns comes with their names; a key of a single column is only its value. */
const isNameHidden = ({ redactor }: RequestContext, { sourceKey }: FoundTask): boolean =>
  sourceKey?.some((name) => redactor.hides([name])) === true;

function toItem(context: RequestContext, task: FoundTask): WorkItem {
  const { redactor } = context;
  const title = idText(task.sourceDocId);
  return {
    kind: 'tasks',
    ...shownKey(context, { ref: refOf(task.id), title, isNameHidden: isNameHidden(context, task) }),
    name: redactor.text(task.task),
    status: task.status,
    dueAt: task.status === 'pending' ? iso(task.scheduledAt) : null,
    createdAt: iso(task.createdAt),
    updatedAt: iso(task.updatedAt),
    attempts: task.attempts,
    ...present({
      error: task.lastError === undefined ? undefined : redactor.text(task.lastError),
      claimedBy: isRunning(task) ? task.claimedBy : undefined,
    }),
  };
}

async function taskOf({ mill }: RequestContext, ref: string): Promise<FoundTask> {
  const [task] = (await mill.tasks.find({ id: idOf(ref) }, { limit: 1 })).items;
  if (task === undefined) throw notFound('The task does not exist, or was deleted.');
  return task;
}

async function detail(context: RequestContext, ref: string): Promise<WorkDetail> {
  const { mill, redactor } = context;
  const task = await taskOf(context, ref);
  const running = isRunning(task)
    ? { attempt: task.attempts, since: task.lockedAt, by: task.claimedBy }
    : null;
  const ended = task.status === 'completed' || task.status === 'failed';
  const data = may(context, 'payload');
  const found = data ? await mill.tasks.document(task.id) : undefined;
  return {
    ...toItem(context, task),
    why: ended ? [] : await whyOf(context, { kind: 'tasks', id: task.id }),
    actions: offered(context, ['retry']),
    timeline: timelineOf(task.executionHistory, running, redactor),
    facts: factsOf({
      'limit key': data && task.limitKey !== undefined ? redactor.text(task.limitKey) : undefined,
      'first due': task.initialScheduledAt,
      'first error': task.firstErrorAt,
      'last success': task.lastSuccess?.at,
      'last end': task.lastFinalizedAt,
    }),
    hidden: !data,
    ...(data
      ? {
          payload: redactor.value(task.lastObservedValues),
          source: { collection: found?.collection ?? '', document: redactor.value(found?.document ?? null) },
        }
      : {}),
  };
}

/** A retry that names no states is for failed tasks. */
function chosenFilter(chosen: Chosen, action: Action | undefined): TasksFilter {
  if ('ids' in chosen) return { id: chosen.ids.map(idOf) };
  const filter = toFilter(chosen.filter);
  return action === undefined || filter.status !== undefined ? filter : { ...filter, status: 'failed' };
}

const BATCH = 500;
const KEYS_MS = 60_000;

/** Walks from the latest due time down: a reset task is due now, so it never moves ahead of the cursor. */
async function many(context: RequestContext, request: ManyRequest): Promise<number> {
  const { mill } = context;
  const { action, chosen, asOf, signal, progress } = request;
  const filter = chosenFilter(chosen, action);
  const search = searchOf(context, filter, DUE_DOWN);
  let count = 0;
  for (let cursor: string | null | undefined; cursor !== null && !signal.aborted;) {
    const page = await search.find({ limit: BATCH, ...(cursor === undefined ? {} : { cursor }) });
    const id = page.items
      .filter((task) => isShown(context, search, task))
      .filter(({ updatedAt, lastFinalizedAt = updatedAt }) => lastFinalizedAt <= asOf && updatedAt <= asOf)
      .map((task) => task.id);
    // The states are checked again: they may have changed since the page was read.
    const again = { id, ...present({ status: filter.status }) };
    if (id.length > 0) count += (await mill.tasks.retryMany(again)).count;
    await progress(count);
    if (page.partial === true) throw tooLong();
    cursor = page.next;
  }
  return count;
}

/** One task of each name tells the columns of its source's key. */
async function hidesKeys(context: RequestContext, { name }: WorkFilter): Promise<boolean> {
  const { mill, cache } = context;
  const names = name.length > 0 ? name : (await mill.tasks.stats()).map(({ task }) => task);
  const keys = names.map((task) =>
    cache.get(`key of ${task}`, async () => (await mill.tasks.find({ task }, { limit: 1 })).items, KEYS_MS),
  );
  return (await Promise.all(keys)).flat().some((task) => isNameHidden(context, task));
}

export const tasks: Kind = {
  bulk: ['retry'],
  nameActions: ['pause', 'resume', 'reconcile', 'forget'],
  detail,
  many,
  title: (ref) => `task ${idOf(ref)}`,
  hidesKeys,
  find: async (context, query) => {
    const { sort = 'dueAt', order } = query;
    const page = await searched(context, searchOf(context, toFilter(query), { [FIELD[sort]]: order }), query);
    return {
      items: page.items.map((task) => toItem(context, task)),
      ...placesOf(context, query, page),
      partial: page.partial === true,
    };
  },
  act: async (context, action, ref) => {
    if (action !== 'retry') throw badRequest(`Tasks have no action "${action}".`);
    const { id } = await taskOf(context, ref);
    const { count } = await context.mill.tasks.retryMany({ id });
    return count === 1
      ? { outcome: 'retried', message: 'The task is due now; if it is running, it runs again when it ends.' }
      : { outcome: 'unplannable', message: 'Not retried: the planner could not evaluate the document.' };
  },
  count: (context, chosen, action, limit) => {
    const filter = chosenFilter(chosen, action);
    return filter.error === undefined
      ? context.mill.tasks.count(filter, { limit })
      : countShown(context, searchOf(context, filter, DUE_DOWN), limit);
  },
};
