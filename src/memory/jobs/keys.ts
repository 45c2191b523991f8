import { NEVER } from '../../core/records/job.js';
import { grantStarts, NO_STARTS, startsInWindow, type RateState } from '../../time/rate.js';
import type { KeyRule, KeyUse } from '../../store/port.js';
import { byTurn, type Row } from './records.js';

/** The jobs of one key of one name, and what its limits remember. */
export interface KeyState {
  readonly key: string;
  readonly pending: Set<Row>;
  readonly running: Set<Row>;
  /** When it had its last turn; the number puts turns of the same moment in order. */
  served: { readonly at: number; readonly number: number };
  rate: RateState;
}

export const newKey = (key: string): KeyState => ({
  key,
  pending: new Set(),
  running: new Set(),
  served: { at: 0, number: 0 },
  rate: NO_STARTS,
});

/** What a claim may take of a name, in turn. */
export interface KeyedPlan {
  readonly rows: readonly Row[];
  /** Present if keys hold up due work: when the first of it can run by itself, or null. */
  readonly heldUp?: Date | null;
}

interface Candidate {
  readonly state: KeyState;
  readonly queue: Row[];
  running: number;
  rate: RateState;
  readyAt: number;
  turn: number;
}

const byOrder = (a: Row, b: Row): number => {
  const [first, second] = [a.limitOrder ?? '', b.limitOrder ?? ''];
  if (first !== second) return first < second ? -1 : 1;
  return a.serial - b.serial;
};

const mostOf = ({ order, concurrency = Infinity }: KeyRule): number =>
  order === undefined ? concurrency : 1;

/**
 * The jobs of a key in their order, and the one that holds it although it is not due. A successor that waits for its
 * predecessor holds nothing.
 */
function queueOf(
  rows: Iterable<Row>,
  { order, whileRetrying = 'hold' }: KeyRule,
  isDue: (row: Row) => boolean,
): { readonly queue: Row[]; readonly holds?: Row } {
  if (order === undefined) return { queue: [...rows].filter(isDue).sort(byTurn) };
  const counted = [...rows].filter(
    (row) =>
      isDue(row) || (whileRetrying === 'hold' && row.limitOrder !== undefined && row.nextRunAt < NEVER),
  );
  const queue = counted.sort(byOrder);
  const [head] = queue;
  return head === undefined || isDue(head) ? { queue: queue.filter(isDue) } : { queue: [], holds: head };
}

/** Plans up to `most` starts of a name, one per turn of a key; writes nothing. */
export function planKeyed(
  keys: Iterable<KeyState>,
  rule: KeyRule,
  {
    most,
    now,
    isDue,
  }: { readonly most: number; readonly now: number; readonly isDue: (row: Row) => boolean },
): KeyedPlan {
  const waits: (number | null)[] = [];
  const ready: Candidate[] = [];
  for (const state of keys) {
    const { queue, holds } = queueOf(state.pending, rule, isDue);
    if (holds !== undefined && [...state.pending].some(isDue))
      waits.push(state.running.size > 0 ? null : holds.nextRunAt.getTime());
    const [head] = queue;
    if (head === undefined) continue;
    const { rate, served, running } = state;
    const candidate = { state, queue, running: running.size, rate, readyAt: 0, turn: served.number };
    const freeAt = blockedUntil(candidate, rule, now);
    candidate.readyAt = Math.max(head.nextRunAt.getTime(), served.at, freeAt ?? 0);
    if (freeAt === null || freeAt > now) waits.push(freeAt);
    else ready.push(candidate);
  }
  const rows = turns(ready, rule, most, now, waits);
  const times = waits.filter((at) => at !== null);
  if (waits.length === 0) return { rows };
  return { rows, heldUp: times.length === 0 ? null : new Date(Math.min(...times)) };
}

/** When the key may start another: null if only after an end, 0 if at once. */
function blockedUntil({ running, rate }: Candidate, rule: KeyRule, now: number): number | null {
  if (running >= mostOf(rule)) return null;
  if (rule.rate === undefined) return 0;
  const { granted, freeAt } = grantStarts(rate, rule.rate, { wanted: 1, now, withinMs: 0 });
  return granted === 1 ? 0 : freeAt;
}

function turns(
  ready: Candidate[],
  rule: KeyRule,
  most: number,
  now: number,
  waits: (number | null)[],
): Row[] {
  const rows: Row[] = [];
  let round = ready.sort((a, b) => a.readyAt - b.readyAt || a.turn - b.turn);
  while (round.length > 0 && rows.length < most) {
    const next: Candidate[] = [];
    for (const candidate of round) {
      if (rows.length === most) return rows;
      rows.push(candidate.queue.shift() as Row);
      candidate.running += 1;
      if (rule.rate !== undefined)
        candidate.rate = grantStarts(candidate.rate, rule.rate, { wanted: 1, now, withinMs: 0 }).state;
      if (candidate.queue.length === 0) continue;
      const freeAt = blockedUntil(candidate, rule, now);
      if (freeAt === 0) next.push(candidate);
      else waits.push(freeAt);
    }
    round = next;
  }
  return rows;
}

/** Counts a start of a key: its rate is used, and the others have their turn before it. */
export function countStart(state: KeyState, rule: KeyRule, now: number, number: number): void {
  state.served = { at: now, number };
  if (rule.rate !== undefined)
    state.rate = grantStarts(state.rate, rule.rate, { wanted: 1, now, withinMs: 0 }).state;
}

/** True if nothing of the key is left, so that it may be forgotten. */
export const isIdle = ({ pending, running }: KeyState): boolean => pending.size === 0 && running.size === 0;

/** True if the key's rate still counts a start. */
export const isCounting = ({ rate }: KeyState, rule: KeyRule, now: number): boolean =>
  rule.rate !== undefined && startsInWindow(rate, rule.rate, now) > 0;

const MOST_COUNTED = 1_000;

export function keyUses(
  all: Iterable<KeyState>,
  now: Date,
  rule: KeyRule,
  which: { readonly limit: number } | readonly string[],
): readonly KeyUse[] {
  const states = [...all];
  const isList = (value: typeof which): value is readonly string[] => Array.isArray(value);
  const chosen = isList(which) ? states.filter(({ key }) => which.includes(key)) : states;
  const uses = chosen.map((state) => useOf(state, rule, now));
  if (isList(which)) return uses;
  const waiting = uses.filter(({ dueSince }) => dueSince !== undefined);
  const since = ({ dueSince }: KeyUse): number => dueSince?.getTime() ?? Infinity;
  return waiting.sort((a, b) => since(a) - since(b)).slice(0, which.limit);
}

function useOf({ key, pending, running, rate }: KeyState, rule: KeyRule, now: Date): KeyUse {
  const due = [...pending].filter((row) => row.nextRunAt <= now);
  const [first] = due.map(({ nextRunAt }) => nextRunAt).sort((a, b) => a.getTime() - b.getTime());
  const freeAt =
    rule.rate === undefined
      ? 0
      : grantStarts(rate, rule.rate, { wanted: 0, now: now.getTime(), withinMs: 0 }).freeAt;
  const { queue, holds } = queueOf(pending, rule, (row) => row.nextRunAt <= now);
  const head = rule.order === undefined ? undefined : ([...running][0] ?? holds ?? queue[0])?.id;
  return {
    key,
    running: running.size,
    due: Math.min(due.length, MOST_COUNTED),
    ...(first === undefined ? {} : { dueSince: new Date(first) }),
    ...(freeAt > now.getTime() ? { rateFreeAt: new Date(freeAt) } : {}),
    ...(head === undefined ? {} : { head }),
    ...(holds === undefined || running.size > 0 ? {} : { headAt: new Date(holds.nextRunAt) }),
  };
}
