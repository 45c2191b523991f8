import type { ErrorGroups } from '../../index.js';
import { patternOf } from '../../mill/tools.js';
import { may, type Asked } from '../request-context.js';
import type { Failures, FailureGroup, WorkKind } from '../contract.js';
import { checkParameters, KINDS, oneOf } from '../http/parameters.js';
import { documentErrors } from '../kinds/documents.js';
import { kindsOf } from '../http/session.js';

const LIMIT = 5_000;
const MOST_GROUPS = 200;

const ERRORS: Readonly<Record<WorkKind, (asked: Asked) => Promise<ErrorGroups>>> = {
  jobs: ({ mill }) => mill.jobs.errors({ limit: LIMIT }),
  tasks: ({ mill }) => mill.tasks.errors({ limit: LIMIT }),
  documents: ({ mill }) => documentErrors(mill),
};

function toGroup(asked: Asked, kind: WorkKind, group: ErrorGroups['groups'][number]): FailureGroup {
  const example = asked.redactor.text(group.example);
  return {
    kind,
    name: asked.redactor.text(group.name),
    // Secrets are known by their names, of which the pattern of the group has lost a part: `password1=…`.
    pattern: patternOf(example),
    example,
    // What is hidden must not come back as a filter, nor what the viewer may not filter by.
    search: may(asked, 'payload') && example.includes(group.search) ? group.search : '',
    count: group.count,
    firstAt: group.firstAt.toISOString(),
    lastAt: group.lastAt.toISOString(),
  };
}

export async function failures(asked: Asked, query: URLSearchParams): Promise<Failures> {
  checkParameters(query, ['kind']);
  const wanted = oneOf(query, 'kind', KINDS);
  const kinds = kindsOf(asked.mill).filter((kind) => wanted === undefined || kind === wanted);
  const found = await Promise.all(kinds.map(async (kind) => ({ kind, ...(await ERRORS[kind](asked)) })));
  const groups = found
    .flatMap(({ kind, groups: own }) => own.map((group) => toGroup(asked, kind, group)))
    .sort((a, b) => (a.lastAt < b.lastAt ? 1 : -1));
  return {
    groups: groups.slice(0, MOST_GROUPS),
    partial: groups.length > MOST_GROUPS || found.some(({ partial }) => partial),
  };
}
