import type { Job } from '../index.js';
import { scopeText, type KeyUse, type LimitStore, type ScopeRecord } from '../store/port.js';

/**
 * Until when limits hold a pending job up, in milliseconds; undefined: they do not. Infinity: until something else ends
 * or comes due, such as the job that is first of its key. What waits for a job that runs is not held up.
 */
type HeldUp = (job: Pick<Job, 'id' | 'name' | 'limitKey'>) => number | undefined;

/** Looks at all limits once. The answer is of this moment. */
export async function heldUp(limits: LimitStore): Promise<HeldUp> {
  const { now, scopes } = await limits.read();
  const records = new Map(scopes.map((record) => [scopeText(record.scope), record]));
  const keys = new Map<string, ReadonlyMap<string, KeyUse>>();
  for (const { scope, limits: rules } of scopes) {
    if (scope.kind !== 'job' || rules.perKey === undefined) continue;
    const uses = await limits.keys({ kind: 'job', name: scope.name }, rules.perKey, { limit: Infinity });
    keys.set(scope.name, new Map(uses.map((use) => [use.key, use])));
  }
  return ({ id, name, limitKey = '' }) => {
    const own = records.get(scopeText({ kind: 'job', name }));
    if (own === undefined) return undefined;
    const shared = (own.limits.shared ?? []).flatMap(
      (one) => records.get(scopeText({ kind: 'shared', name: one })) ?? [],
    );
    const ends = [...[own, ...shared].map(endOf), keyEndOf(keys.get(name)?.get(limitKey), id)];
    const end = Math.max(...ends);
    return end > now.getTime() ? end : undefined;
  };
}

/** When the rate and the breaker of a scope let the next start through; 0: now. */
function endOf({ rateFreeAt, breaker }: ScopeRecord): number {
  const opensAt = breaker.state === 'open' ? breaker.until?.getTime() : undefined;
  return Math.max(rateFreeAt?.getTime() ?? 0, opensAt ?? 0);
}

function keyEndOf(use: KeyUse | undefined, id: string): number {
  if (use === undefined) return 0;
  return use.head === undefined || use.head === id ? (use.rateFreeAt?.getTime() ?? 0) : Infinity;
}
