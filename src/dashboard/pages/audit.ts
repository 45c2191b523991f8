import type { RequestContext } from '../request-context.js';
import type { AuditPage } from '../contract.js';
import { outcomeOf } from '../actions/operations.js';
import { checkParameters, cursorOf, limitOf } from '../http/parameters.js';

export async function auditPage(
  { mill, redactor }: RequestContext,
  query: URLSearchParams,
): Promise<AuditPage> {
  checkParameters(query, ['cursor', 'limit']);
  const cursor = cursorOf(query);
  const asked = { limit: limitOf(query), ...(cursor === undefined ? {} : { cursor }) };
  const [page, now] = await Promise.all([mill.audit.list(asked), mill.time()]);
  return {
    items: page.items.map((entry) => ({
      at: entry.at.toISOString(),
      actor: entry.actor,
      action: entry.action,
      target: redactor.text(entry.target),
      outcome: redactor.text(outcomeOf(entry, now)),
    })),
    next: page.next,
  };
}
