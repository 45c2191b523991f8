import { need } from './http/access.js';
import {
  actOnEverything,
  actOnName,
  actOnOne,
  actOnScheduleRow,
  begin,
  countTarget,
} from './actions/actions.js';
import { actOnLimit } from './actions/limits.js';
import type { ResponseCache } from './response-cache.js';
import { may, type RequestContext } from './request-context.js';
import type { Action, Session, WorkKind } from './contract.js';
import { KIND, kindsOf } from './kinds/all.js';
import type { Kind } from './kinds/kind.js';
import { auditPage } from './pages/audit.js';
import { Body } from './http/body.js';
import { checkCsrf, session } from './http/csrf.js';
import { badRequest, notFound, Refusal } from './http/errors.js';
import { failures } from './pages/failures.js';
import { limitsPage } from './pages/limits.js';
import type { Live } from './http/live.js';
import type { Operations } from './actions/operations.js';
import { overview } from './pages/overview.js';
import { checkParameters, one, STATUSES } from './http/parameters.js';
import { json } from './http/respond.js';
import { schedulePage } from './kinds/schedules.js';
import { workDetail, workPage } from './kinds/work.js';

export interface ApiParts {
  readonly cache: ResponseCache;
  readonly live: Live;
  readonly operations: Operations;
  readonly version: string;
}

const LONGEST_PATH = 8_000;
const HEX = /^[0-9a-f]{24}$/u;

const operationId = (id: string): string => {
  if (!HEX.test(id)) throw notFound('The operation does not exist, or was deleted.');
  return id;
};

/** Returns the reader of a GET path that viewers can share and follow live, or undefined if there is no such path. */
function reading(
  context: RequestContext,
  { operations }: ApiParts,
  path: string,
  query: URLSearchParams,
): (() => Promise<unknown>) | undefined {
  const [page, first, second, ...others] = path.split('/');
  if (others.length > 0) return undefined;
  if (second !== undefined)
    return page === 'work' && first !== undefined
      ? async () => workDetail(context, first, second)
      : undefined;
  if (first !== undefined)
    return page === 'operations' ? async () => operations.get(context, operationId(first)) : undefined;
  switch (page) {
    case 'overview':
      return async () => overview(context, query);
    case 'work':
      return async () => workPage(context, query);
    case 'schedules':
      return async () => schedulePage(context, query);
    case 'failures':
      return async () => failures(context, query);
    case 'limits':
      return async () => limitsPage(context, query);
    case 'audit':
      return async () => auditPage(context, query);
    default:
      return undefined;
  }
}

/** The cache key: shared by all viewers with the same rights, whatever the order of the query parameters. */
function keyOf({ viewer }: RequestContext, path: string, query: URLSearchParams): string {
  const sorted = new URLSearchParams(query);
  sorted.sort();
  return JSON.stringify([viewer.rights, path, sorted.toString()]);
}

function shared(
  context: RequestContext,
  parts: ApiParts,
  path: string,
  query: URLSearchParams,
): { readonly key: string; readonly make: () => Promise<unknown> } {
  const make = reading(context, parts, path, query);
  if (make === undefined) throw notFound();
  const key = keyOf(context, path, query);
  return { key, make: () => parts.cache.get(key, make) };
}

async function follow(context: RequestContext, parts: ApiParts, query: URLSearchParams): Promise<Response> {
  checkParameters(query, ['path']);
  const [path = '', search = ''] = (one(query, 'path', LONGEST_PATH) ?? '').split('?', 2);
  if (path === '') throw badRequest('"path" is missing.');
  const { key, make } = shared(context, parts, path, new URLSearchParams(search));
  const whose = context.viewer.isNamed ? context.viewer.actor : undefined;
  // Checked before anything reaches the store.
  parts.live.check(whose);
  // Read once first: a refused request then gets an error response instead of a stream of errors.
  await make();
  return parts.live.follow(key, whose, make);
}

/** What the page needs to know about its viewer and its mill. */
function sessionOf(context: RequestContext, csrf: string, version: string): Session {
  const offered = (of: (kind: Kind) => readonly Action[]): Record<WorkKind, readonly Action[]> => {
    const actions = (kind: Kind): readonly Action[] => (may(context, 'act') ? of(kind) : []);
    return { jobs: actions(KIND.jobs), tasks: actions(KIND.tasks), documents: actions(KIND.documents) };
  };
  return {
    rights: context.viewer.rights,
    readOnly: context.settings.readOnly,
    csrf,
    store: context.mill.health().store,
    kinds: kindsOf(context.mill),
    statuses: STATUSES,
    version,
    bulk: offered(({ bulk }) => bulk),
    nameActions: offered(({ nameActions }) => nameActions),
  };
}

async function get(
  context: RequestContext,
  parts: ApiParts,
  request: Request,
  path: string,
): Promise<Response> {
  const { searchParams } = new URL(request.url);
  if (path === 'session') {
    const { token, cookie } = session(request, context.settings);
    return json(sessionOf(context, token, parts.version), 200, { 'set-cookie': cookie });
  }
  if (path === 'live') return follow(context, parts, searchParams);
  return json(await shared(context, parts, path, searchParams).make());
}

type Change = (context: RequestContext, body: Body, operations: Operations) => Promise<unknown>;

const CHANGES: Readonly<Record<string, Change>> = {
  act: actOnOne,
  names: actOnName,
  schedules: actOnScheduleRow,
  everything: actOnEverything,
  limits: actOnLimit,
  count: countTarget,
  actions: begin,
};

function changing(path: string): Change {
  const change = Object.hasOwn(CHANGES, path) ? CHANGES[path] : undefined;
  if (change !== undefined) return change;
  const [page, id, verb, ...others] = path.split('/');
  if (page === 'operations' && id !== undefined && verb === 'stop' && others.length === 0)
    return (context, _body, operations) => operations.stop(context, operationId(id));
  throw notFound();
}

async function post(
  context: RequestContext,
  parts: ApiParts,
  request: Request,
  path: string,
): Promise<Response> {
  const change = changing(path);
  checkCsrf(request, context.settings);
  need(context.viewer, 'act');
  const answer = await change(context, await Body.read(request), parts.operations);
  // The viewer reads again after acting, and must see the result.
  parts.cache.clear();
  return json(answer);
}

/** Handles every path below `api/`. */
export async function api(
  context: RequestContext,
  parts: ApiParts,
  request: Request,
  path: string,
): Promise<Response> {
  need(context.viewer, 'view');
  if (request.method === 'GET') return get(context, parts, request, path);
  if (request.method === 'POST') return post(context, parts, request, path);
  throw new Refusal(405, 'bad_request', 'Only GET and POST are allowed here.');
}
