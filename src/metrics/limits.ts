import type { MeasuredKind } from '../store/metrics.js';
import type { BreakerState, Depth, ScopeKind, ScopeRecord } from '../store/port.js';

/** What a scrape says of one limit. Absent parts: it does not limit that. */
export interface LimitUse {
  readonly kind: ScopeKind;
  readonly name: string;
  readonly running?: number;
  readonly capacity?: number;
  readonly windowStarts?: number;
  readonly windowCapacity?: number;
  readonly waiting: number;
  readonly breaker?: BreakerState['state'];
}

/** How the metrics call the kinds of scopes. */
const KIND: Readonly<Record<Exclude<ScopeKind, 'shared'>, MeasuredKind>> = {
  job: 'job',
  task: 'task',
  documents: 'document',
};

/** The limits that hold now, with the due work that they may hold up. */
export function limitUses(
  scopes: readonly ScopeRecord[],
  depths: Readonly<Record<MeasuredKind, readonly Depth[]>>,
): readonly LimitUse[] {
  const due = ({ scope: { kind, name } }: ScopeRecord): number =>
    kind === 'shared' ? 0 : (depths[KIND[kind]].find((depth) => depth.name === name)?.due ?? 0);
  return scopes
    .filter(({ limits }) => Object.keys(limits).length > 0)
    .map((record) => {
      const users = scopes.filter(({ limits }) => limits.shared?.includes(record.scope.name) === true);
      const waiting = record.scope.kind === 'shared' ? users : [record];
      return { ...useOf(record), waiting: waiting.reduce((sum, one) => sum + due(one), 0) };
    });
}

function useOf({ scope, limits, holders, startsInWindow, breaker }: ScopeRecord): Omit<LimitUse, 'waiting'> {
  const { concurrency, rate } = limits;
  const isHeld = (concurrency ?? rate ?? limits.breaker) !== undefined;
  return {
    ...scope,
    ...(isHeld ? { running: holders.reduce((sum, { held }) => sum + held, 0) } : {}),
    ...(concurrency === undefined ? {} : { capacity: concurrency }),
    ...(rate === undefined ? {} : { windowStarts: startsInWindow, windowCapacity: rate.limit }),
    ...(limits.breaker === undefined ? {} : { breaker: breaker.state }),
  };
}
