import type { ErrorGroups } from '../../index.js';
import { patternOf } from '../../mill/tools.js';
import { may, type RequestContext } from '../request-context.js';
import type { Failures, FailureGroup, WorkKind } from '../contract.js';
import { checkParameters, KINDS, oneOf } from '../http/parameters.js';
import { documentErrors } from '../kinds/documents.js';
import { kindsOf } from '../kinds/all.js';

const LIMIT = 5_000;
const MOST_GROUPS = 200;

const ERRORS: Readonly<Record<WorkKind, (context: RequestContext) => Promise<ErrorGroups>>> = {
  jobs: ({ mill }) => mill.jobs.errors({ limit: LIMIT }),
  tasks: ({ mill }) => mill.tasks.errors({ limit: LIMIT }),
  documents: ({ mill }) => documentErrors(mill),
};

function toGroup(
  context: RequestContext,
  kind: WorkKind,
  group: ErrorGroups['groups'][number],
): FailureGroup {
  const example = context.redactor.text(group.example);
  return {
    kind,
    name: context.redactor.text(group.name),
    // Redacted before the pattern is made: secrets are recognised by their names, and a pattern lacks the digits of
    // `password1=…`.
    pattern: patternOf(example),
    example,
    // Neither hidden text nor text that the viewer may not filter by comes back as a filter.
    search: may(context, 'payload') && example.includes(group.search) ? group.search : '',
    count: group.count,
    firstAt: group.firstAt.toISOString(),
    lastAt: group.lastAt.toISOString(),
  };
}

export async function failures(context: RequestContext, query: URLSearchParams): Promise<Failures> {
  checkParameters(query, ['kind']);
  const wanted = oneOf(query, 'kind', KINDS);
  const kinds = kindsOf(context.mill).filter((kind) => wanted === undefined || kind === wanted);
  const found = await Promise.all(kinds.map(async (kind) => ({ kind, ...(await ERRORS[kind](context)) })));
  const groups = found
    .flatMap(({ kind, groups: own }) => own.map((group) => toGroup(context, kind, group)))
    .sort((a, b) => (a.lastAt < b.lastAt ? 1 : -1));
  return {
    groups: groups.slice(0, MOST_GROUPS),
    partial: groups.length > MOST_GROUPS || found.some(({ partial }) => partial),
  };
}
