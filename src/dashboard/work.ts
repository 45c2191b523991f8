import { may, type Asked } from './asked.js';
import type { WorkDetail, WorkKind, WorkPage } from './contract.js';
import { notFound, Refusal } from './errors.js';
import { KINDS, readQuery, type WorkFilter } from './parameters.js';
import { KIND } from './session.js';

/** Comparing with data tells about it: only whoever may see it may ask, and nobody about what is hidden. */
export function checkFields(asked: Asked, { fields }: WorkFilter): void {
  const paths = Object.keys(fields);
  if (paths.length > 0 && !may(asked, 'payload'))
    throw new Refusal(403, 'forbidden', 'You may not see data, so you may not filter by it.');
  const hidden = paths.find((path) => asked.redactor.guards(path));
  if (hidden !== undefined)
    throw new Refusal(403, 'forbidden', `"${hidden}" is hidden, so it cannot be filtered by.`);
}

export function workPage(asked: Asked, parameters: URLSearchParams): Promise<WorkPage> {
  const query = readQuery(parameters);
  checkFields(asked, query);
  return KIND[query.kind].find(asked, query);
}

export function workDetail(asked: Asked, kind: string, ref: string): Promise<WorkDetail> {
  const known = KINDS.find((one): one is WorkKind => one === kind);
  if (known === undefined) throw notFound();
  return KIND[known].detail(asked, ref);
}
