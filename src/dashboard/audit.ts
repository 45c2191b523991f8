import type { Asked } from './asked.js';
import type { AuditPage } from './contract.js';
import { checkParameters, cursorOf, limitOf } from './parameters.js';

export async function auditPage({ mill }: Asked, query: URLSearchParams): Promise<AuditPage> {
  checkParameters(query, ['cursor', 'limit']);
  const cursor = cursorOf(query);
  const page = await mill.audit.list({ limit: limitOf(query), ...(cursor === undefined ? {} : { cursor }) });
  return {
    items: page.items.map(({ at, actor, action, target, outcome }) => ({
      at: at.toISOString(),
      actor,
      action,
      target,
      outcome,
    })),
    next: page.next,
  };
}
