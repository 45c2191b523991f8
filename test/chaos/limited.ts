/**
 * Names with limits among the work of a chaos run, and the judgement whether the limits held: it counts runs and starts
 * in the log of effects, from outside of every process.
 */
import type { BreakerOptions, Tidemill } from '../../src/index.js';
import type { Line } from './journal.js';
import { leaseHadEnded, overlaps, type Run } from './judge.js';

const CAPPED = { concurrency: 2, gate: 4 };
const PACED = { limit: 10, perMs: 1_000 };
/** Of each key. */
const METERED = { limit: 4, perMs: 1_000 };
/** Of two names together. */
const SHARED = { limit: 8, perMs: 1_000 };
const GATE = 'gate';
const METER = 'meter';

/** Each limits another thing. */
export const LIMITED = {
  capped: { concurrency: CAPPED.concurrency, shared: [GATE] },
  paced: { rate: { limit: PACED.limit, per: PACED.perMs, burst: 3 } },
  tenant: { perKey: { key: 'key', concurrency: 1 }, shared: [GATE] },
  ordered: { perKey: { key: 'key', order: 'fifo' } },
  passing: { perKey: { key: 'key', order: 'fifo', whileRetrying: 'pass' } },
  metered: {
    perKey: { key: 'key', rate: { limit: METERED.limit, per: METERED.perMs, burst: 2 } },
    shared: [METER],
  },
  guarded: { shared: [METER] },
} as const;
/** Failures on purpose open it now and then, for less time than the run would miss. */
export const BREAKERS: { readonly [name in LimitedName]?: BreakerOptions } = {
  guarded: { failures: 3, within: '5s', pause: '500ms' },
};
type LimitedName = keyof typeof LIMITED;
export const LIMITED_NAMES = Object.keys(LIMITED) as readonly LimitedName[];

export const isLimited = (name: string): name is LimitedName => Object.hasOwn(LIMITED, name);
export function defineShared(mill: Pick<Tidemill, 'limit'>): void {
  mill.limit(GATE, { concurrency: CAPPED.gate });
  mill.limit(METER, { rate: { limit: SHARED.limit, per: SHARED.perMs, burst: 4 } });
}

/** Everything that contradicts the limits; empty if they held. */
export function limitViolations(lines: readonly Line[], runs: readonly Run[], leaseMs: number): string[] {
  const signs = lines.filter(({ what }) => SIGNS.has(what));
  const dueAt = new Map(lines.flatMap(({ id, due }) => (due === undefined ? [] : [[id, due]])));
  const of = (...names: readonly LimitedName[]): Run[] =>
    runs.filter(({ name }) => names.some((one) => one === name));
  const atMost = (most: number, group: readonly Run[]): string[] => overlaps(signs, group, leaseMs, most);
  // Jobs of one key were enqueued one after the other, so the number in an id tells their order.
  const isBefore = (a: Run, b: Run): boolean =>
    orderOf(a) < orderOf(b) && (dueAt.get(a.id) ?? 0) <= (dueAt.get(b.id) ?? 0);
  /** One that lost its lease before its handler began is excused, as where runs overlap. */
  const isOvertaken = (late: Run, early: Run): boolean =>
    early.start < late.start && isBefore(late, early) && !leaseHadEnded(signs, late, early, leaseMs);
  const inOrder = (group: readonly Run[]): string[] =>
    group.flatMap((late) =>
      group
        .filter((early) => isOvertaken(late, early))
        .map((early) => `${late.id} of ${String(late.limitKey)} ran after ${early.id} had started`),
    );
  return [
    ...atMost(CAPPED.concurrency, of('capped')),
    ...atMost(CAPPED.gate, of('capped', 'tenant')),
    ...byKey(of('tenant')).flatMap((group) => atMost(1, group)),
    ...byKey(of('ordered')).flatMap((group) => [...atMost(1, group), ...inOrder(group)]),
    // A retry goes to its old place in the order, and `pass` lets others go before it: only one at a time is certain.
    ...byKey(of('passing')).flatMap((group) => atMost(1, group)),
    ...crowded('paced', PACED, of('paced')),
    ...crowded(METER, SHARED, of('metered', 'guarded')),
    ...byKey(of('metered')).flatMap((group) => crowded(`key ${String(group[0]?.limitKey)}`, METERED, group)),
  ];
}

/** Lines that say whether a lease had ended. */
const SIGNS: ReadonlySet<string> = new Set(['kill', 'lost', 'stop', 'cont']);
const orderOf = ({ id }: Run): number => Number(id.split('-')[1]);

/** How close to their limits the names came: otherwise a run without a violation would say little. */
export function reachedLimits(runs: readonly Run[]): { readonly atOnce: number; readonly inWindow: number } {
  const capped = runs.filter(({ name, end }) => name === 'capped' && end < Infinity);
  const atOnce = capped.map(
    ({ start }) => capped.filter((other) => other.start <= start && other.end > start).length,
  );
  const starts = startsOf(runs.filter(({ name }) => name === 'paced'));
  const inWindow = starts.map((at) => within(starts, at, PACED.perMs));
  return { atOnce: Math.max(0, ...atOnce), inWindow: Math.max(0, ...inWindow) };
}

function byKey(runs: readonly Run[]): Run[][] {
  const keys = new Set(runs.map(({ limitKey }) => limitKey));
  return [...keys].map((key) => runs.filter(({ limitKey }) => limitKey === key));
}

/** A start is a claim: its time by the server's clock, once for each claim. */
const startsOf = (runs: readonly Run[]): readonly number[] => {
  const claims = new Map(runs.map(({ id, claimedAt = NaN }) => [`${id} ${String(claimedAt)}`, claimedAt]));
  return [...claims.values()].sort((a, b) => a - b);
};

const within = (starts: readonly number[], from: number, perMs: number): number =>
  starts.filter((at) => at >= from && at < from + perMs).length;

function crowded(
  what: string,
  { limit, perMs }: { readonly limit: number; readonly perMs: number },
  runs: readonly Run[],
): string[] {
  const starts = startsOf(runs);
  return starts
    .map((at) => ({ at, count: within(starts, at, perMs) }))
    .filter(({ count }) => count > limit)
    .map(({ at, count }) => `${what} started ${String(count)} times in the window from ${String(at)}`);
}
