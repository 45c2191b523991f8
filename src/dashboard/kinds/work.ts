import { may, type RequestContext } from '../request-context.js';
import type { WorkDetail, WorkKind, WorkPage } from '../contract.js';
import { notFound, Refusal } from '../http/errors.js';
import { KINDS, readQuery, type WorkFilter } from '../http/parameters.js';
import { openPlace } from '../redaction/reference.js';
import { Seal } from '../redaction/seal.js';
import { KIND } from './all.js';

/** A comparison reveals data, so filters need the right `payload`, and none may use a hidden field. */
export async function checkFields(context: RequestContext, filter: WorkFilter): Promise<void> {
  const paths = Object.keys(filter.fields);
  if (paths.length > 0 && !may(context, 'payload'))
    throw new Refusal(403, 'forbidden', 'Filtering by data needs the right "payload".');
  // The store compares the whole text, which includes hidden parts; matches are also checked against what is shown.
  if (filter.error !== undefined && !may(context, 'payload'))
    throw new Refusal(403, 'forbidden', 'Searching in error texts needs the right "payload".');
  const hidden = paths.find((path) => context.redactor.guards(path));
  if (hidden !== undefined)
    throw new Refusal(403, 'forbidden', `"${hidden}" is hidden, so you cannot filter by it.`);
  if (paths.includes('_id') && (await KIND[filter.kind].hidesKeys(context, filter)))
    throw new Refusal(403, 'forbidden', 'The key of these documents is hidden, so you cannot filter by it.');
}

export async function workPage(context: RequestContext, parameters: URLSearchParams): Promise<WorkPage> {
  const { cursor, ...query } = readQuery(parameters);
  await checkFields(context, query);
  const place = cursor === undefined ? undefined : openPlace(context, query, cursor);
  return KIND[query.kind].find(context, { ...query, cursor: place });
}

export async function workDetail(context: RequestContext, kind: string, ref: string): Promise<WorkDetail> {
  const known = KINDS.find((one): one is WorkKind => one === kind);
  if (known === undefined) throw notFound();
  const detail = await KIND[known].detail(context, context.seal.open(ref));
  // A plain link to a hidden key is a guess, so the response is the same as for a wrong one.
  if (Seal.isClosed(detail.id) && !Seal.isClosed(ref))
    throw notFound(`The ${known.slice(0, -1)} does not exist, or was deleted.`);
  return detail;
}
