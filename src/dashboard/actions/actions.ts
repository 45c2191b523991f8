/** The POST requests. Each change is in the audit log before it is made; its outcome is added afterwards. */
import type { RequestContext } from '../request-context.js';
import type { ActAnswer, Action, Count, Operation, WorkKind } from '../contract.js';
import { acted } from './acted.js';
import { need } from '../http/access.js';
import { badRequest, conflict } from '../http/errors.js';
import type { Body } from '../http/body.js';
import { KIND } from '../kinds/all.js';
import type { Chosen } from '../kinds/kind.js';
import type { Operations } from './operations.js';
import { REDACTED } from '../redaction/redact-text.js';
import { Seal } from '../redaction/seal.js';
import { inWords, readFilter } from '../http/parameters.js';
import { editedPayload } from '../kinds/jobs.js';
import { actOnSchedule, scheduleTitle } from '../kinds/schedules.js';
import { checkFields } from '../kinds/work.js';

const COUNT_LIMIT = 100_000;
const MOST_IDS = 1_000;

const ONE: Readonly<Record<WorkKind, string>> = { jobs: 'job', tasks: 'task', documents: 'document' };

/** Every viewer may read the audit log, so it hides what the lists hide. */
const titled = (kind: WorkKind, given: string, title: string): { target: string; details?: object } =>
  Seal.isClosed(given)
    ? { target: `${ONE[kind]} ${REDACTED}`, details: { target: title } }
    : { target: title };

export async function actOnOne(context: RequestContext, body: Body): Promise<ActAnswer> {
  const kind = body.kind();
  const [action, given] = [body.action(), body.text('id')];
  const own = KIND[kind];
  const id = context.seal.open(given);
  if (body.has('data')) return retryEdited(context, body, id);
  return acted(context, { action, ...titled(kind, given, own.title(id)) }, () =>
    own.act(context, action, id),
  );
}

/** Retries a job with a corrected payload. Both versions are in the audit entry, with hidden values left out. */
async function retryEdited(context: RequestContext, body: Body, id: string): Promise<ActAnswer> {
  const [kind, action, given] = [body.kind(), body.action(), body.text('id')];
  if (kind !== 'jobs' || action !== 'retry') throw badRequest('"data" is allowed only when retrying a job.');
  need(context.viewer, 'payload');
  const { data, versions } = await editedPayload(context, id, body.value('data'));
  const { target, details } = titled(kind, given, KIND[kind].title(id));
  const entry = { action, target: `${target}, with a corrected payload` };
  return acted(context, { ...entry, details: { ...(details ?? {}), ...versions } }, () =>
    KIND[kind].act(context, action, id, { data }),
  );
}

export async function actOnScheduleRow(context: RequestContext, body: Body): Promise<ActAnswer> {
  const [action, id] = [body.action(), context.seal.open(body.text('id'))];
  return acted(context, { action, ...scheduleTitle(id) }, () => actOnSchedule(context, action, id));
}

const SAID: Readonly<Partial<Record<Action, [string, string]>>> = {
  pause: ['paused', 'No instance starts work of this name until it is resumed.'],
  resume: ['resumed', 'All instances start work of this name again.'],
  reconcile: ['requested', 'The planner checks every document again.'],
  forget: ['forgotten', 'The task is forgotten, and its records are deleted.'],
};

export function actOnName(context: RequestContext, body: Body): Promise<ActAnswer> {
  const { mill } = context;
  const [kind, action, name] = [body.kind(), body.action(), body.text('name')];
  const [outcome, message] = SAID[action] ?? [];
  if (context.redactor.text(name) !== name)
    throw badRequest('This name is hidden, so it cannot be changed here.');
  if (!KIND[kind].nameActions.includes(action) || outcome === undefined || message === undefined)
    throw badRequest(`Names of ${kind} have no action "${action}".`);
  return acted(context, { action, target: `${kind} of the name ${name}` }, async () => {
    if (action === 'reconcile') await mill.tasks.reconcile(name);
    else if (action === 'forget') await mill.tasks.forget(name);
    else if (kind === 'tasks') await mill.tasks[action as 'pause' | 'resume'](name);
    else await mill.jobs[action as 'pause' | 'resume'](name);
    return { outcome, message };
  });
}

const EVERYTHING_SAID = {
  pause: ['paused', 'No instance starts any work until it is resumed. Running work ends normally.'],
  resume: ['resumed', 'All instances start work again. Names that were paused by themselves stay paused.'],
} as const;

/** Pauses or resumes all work of the cluster. */
export function actOnEverything(context: RequestContext, body: Body): Promise<ActAnswer> {
  body.only(['action']);
  const action = body.action();
  if (action !== 'pause' && action !== 'resume')
    throw badRequest('"action" must be pause or resume for all work.');
  const [outcome, message] = EVERYTHING_SAID[action];
  return acted(context, { action, target: 'all work' }, async () => {
    await context.mill[action]();
    return { outcome, message };
  });
}

interface Target {
  readonly kind: WorkKind;
  readonly chosen: Chosen;
  readonly words: string;
  /** The whole request, for the audit log. */
  readonly exactly: { readonly ids: readonly string[] } | { readonly query: string };
}

async function targetOf(context: RequestContext, body: Body): Promise<Target> {
  body.only(['kind', 'ids', 'query']);
  const kind = body.kind();
  const given = body.texts('ids', MOST_IDS);
  const ids = given?.map((id) => context.seal.open(id));
  const query = body.optional('query');
  if (ids !== undefined && query !== undefined) throw badRequest('Pass "ids" or "query", not both.');
  if (ids !== undefined) {
    const titles = ids.map((id) => KIND[kind].title(id));
    const shown = titles.map((title, at) => titled(kind, given?.[at] ?? '', title).target);
    const words = `${String(ids.length)} selected: ${shown.join(', ')}`;
    return { kind, chosen: { ids }, words, exactly: { ids: titles } };
  }
  if (query === undefined) throw badRequest('"ids" or "query" is missing.');
  const parameters = new URLSearchParams(query);
  for (const key of ['cursor', 'limit', 'sort', 'order', 'kind']) parameters.delete(key);
  parameters.set('kind', kind);
  const filter = readFilter(parameters);
  await checkFields(context, filter);
  return { kind, chosen: { filter }, words: inWords(filter), exactly: { query: parameters.toString() } };
}

export async function countTarget(context: RequestContext, body: Body): Promise<Count> {
  const { kind, chosen } = await targetOf(context, body.without(['action']));
  const action = body.has('action') ? body.action() : undefined;
  const asOf = (await context.mill.time()).toISOString();
  const found = await KIND[kind].count(context, chosen, action, COUNT_LIMIT + 1);
  return { count: Math.min(found, COUNT_LIMIT), capped: found > COUNT_LIMIT, asOf };
}

export async function begin(context: RequestContext, body: Body, operations: Operations): Promise<Operation> {
  body.only(['action', 'target', 'expected', 'asOf']);
  const action = body.action();
  const { kind, chosen, words, exactly } = await targetOf(context, body.inner('target'));
  if (!KIND[kind].bulk.includes(action)) throw badRequest(`${kind} have no bulk action "${action}".`);
  const expected = body.number('expected');
  const now = await context.mill.time();
  const asOf = body.date('asOf') ?? now;
  if (asOf > now) throw badRequest('"asOf" must not be in the future.');
  const found = await KIND[kind].count(context, chosen, action, COUNT_LIMIT + 1);
  // Without `asOf`, only `expected` keeps the action from reaching more than the viewer saw.
  if (expected !== undefined && !body.has('asOf') && found > expected && found <= COUNT_LIMIT)
    throw conflict(
      `${String(found)} items match now, not ${String(expected)}. Review the list and try again.`,
    );
  const total = found > COUNT_LIMIT ? null : found;
  return operations.begin(context, { action, kind, chosen, words, exactly, asOf, total });
}
