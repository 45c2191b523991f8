import { need } from './http/access.js';
import { actOnName, actOnOne, actOnScheduleRow, begin, countTarget } from './actions/actions.js';
import type { Answers } from './response-cache.js';
import type { Asked } from './request-context.js';
import { auditPage } from './pages/audit.js';
import { Body } from './http/body.js';
import { checkCsrf, session } from './http/csrf.js';
import { badRequest, notFound, Refusal } from './http/errors.js';
import { failures } from './pages/failures.js';
import type { Live } from './http/live.js';
import type { Operations } from './actions/operations.js';
import { overview } from './pages/overview.js';
import { checkParameters, one } from './http/parameters.js';
import { json } from './http/respond.js';
import { schedulePage } from './kinds/schedules.js';
import { sessionOf } from './http/session.js';
import { workDetail, workPage } from './kinds/work.js';

export interface ApiParts {
  readonly answers: Answers;
  readonly live: Live;
  readonly operations: Operations;
  readonly version: string;
}

const LONGEST_PATH = 8_000;
const HEX = /^[0-9a-f]{24}$/u;

const operationId = (id: string): string => {
  if (!HEX.test(id)) throw notFound('There is no such operation (any more).');
  return id;
};

/** Answers that may be read, shared and followed. Undefined: there is no such path. */
function reading(
  asked: Asked,
  { operations }: ApiParts,
  path: string,
  query: URLSearchParams,
): (() => Promise<unknown>) | undefined {
  const [page, first, second, ...others] = path.split('/');
  if (others.length > 0) return undefined;
  if (second !== undefined)
    return page === 'work' && first !== undefined ? async () => workDetail(asked, first, second) : undefined;
  if (first !== undefined)
    return page === 'operations' ? async () => operations.get(asked, operationId(first)) : undefined;
  switch (page) {
    case 'overview':
      return async () => overview(asked, query);
    case 'work':
      return async () => workPage(asked, query);
    case 'schedules':
      return async () => schedulePage(asked, query);
    case 'failures':
      return async () => failures(asked, query);
    case 'audit':
      return async () => auditPage(asked, query);
    default:
      return undefined;
  }
}

/** The same for all who may see the same; how the query was written makes no difference. */
function keyOf({ viewer }: Asked, path: string, query: URLSearchParams): string {
  const sorted = new URLSearchParams(query);
  sorted.sort();
  return JSON.stringify([viewer.rights, path, sorted.toString()]);
}

function shared(
  asked: Asked,
  parts: ApiParts,
  path: string,
  query: URLSearchParams,
): { readonly key: string; readonly make: () => Promise<unknown> } {
  const make = reading(asked, parts, path, query);
  if (make === undefined) throw notFound();
  const key = keyOf(asked, path, query);
  return { key, make: () => parts.answers.get(key, make) };
}

async function follow(asked: Asked, parts: ApiParts, query: URLSearchParams): Promise<Response> {
  checkParameters(query, ['path']);
  const [path = '', search = ''] = (one(query, 'path', LONGEST_PATH) ?? '').split('?', 2);
  if (path === '') throw badRequest('"path" is missing.');
  const { key, make } = shared(asked, parts, path, new URLSearchParams(search));
  const whose = asked.viewer.isNamed ? asked.viewer.actor : undefined;
  // Before the store is asked anything.
  parts.live.check(whose);
  // A refusal is an answer by itself, and no stream of refusals.
  await make();
  return parts.live.follow(key, whose, make);
}

async function get(asked: Asked, parts: ApiParts, request: Request, path: string): Promise<Response> {
  const { searchParams } = new URL(request.url);
  if (path === 'session') {
    const { token, cookie } = session(request, asked.settings);
    return json(sessionOf(asked, token, parts.version), 200, { 'set-cookie': cookie });
  }
  if (path === 'live') return follow(asked, parts, searchParams);
  return json(await shared(asked, parts, path, searchParams).make());
}

type Change = (asked: Asked, parts: ApiParts, body: Body) => Promise<unknown>;

const CHANGES: Readonly<Record<string, Change>> = {
  act: (asked, _parts, body) => actOnOne(asked, body),
  names: (asked, _parts, body) => actOnName(asked, body),
  schedules: (asked, _parts, body) => actOnScheduleRow(asked, body),
  count: (asked, _parts, body) => countTarget(asked, body),
  actions: (asked, { operations }, body) => begin(asked, body, operations),
};

function changing(path: string): Change {
  const change = Object.hasOwn(CHANGES, path) ? CHANGES[path] : undefined;
  if (change !== undefined) return change;
  const [page, id, verb, ...others] = path.split('/');
  if (page === 'operations' && id !== undefined && verb === 'stop' && others.length === 0)
    return (asked, { operations }) => operations.stop(asked, operationId(id));
  throw notFound();
}

async function post(asked: Asked, parts: ApiParts, request: Request, path: string): Promise<Response> {
  const change = changing(path);
  checkCsrf(request, asked.settings);
  need(asked.viewer, 'act');
  const answer = await change(asked, parts, await Body.read(request));
  // Whoever acted looks again, and must see what came of it.
  parts.answers.clear();
  return json(answer);
}

/** Whatever is below `api/`. */
export async function api(asked: Asked, parts: ApiParts, request: Request, path: string): Promise<Response> {
  need(asked.viewer, 'view');
  if (request.method === 'GET') return get(asked, parts, request, path);
  if (request.method === 'POST') return post(asked, parts, request, path);
  throw new Refusal(405, 'bad_request', 'Only GET and POST are known here.');
}
