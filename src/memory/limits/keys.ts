/** Limits of keys, for any kind of work in memory. */
import { NEVER } from '../../core/records/job.js';
import {
  givenBack,
  grantStarts,
  NO_STARTS,
  sliceMs,
  startsInWindow,
  type RateLimit,
  type RateState,
} from '../../time/rate.js';
import type { KeyRule, KeyTurns, KeyUse } from '../../store/port.js';

/** What keys need to know of a job or a task. */
interface KeyedRow {
  readonly id: string;
  readonly dueAt: Date;
  /** Its place in the order of its key; tasks have none. */
  readonly limitOrder?: string;
}

/** How a kind of work is read, and which of two pieces of it comes first. */
export interface KeyedKind<R> {
  readonly read: (row: R) => KeyedRow;
  readonly byTurn: (a: R, b: R) => number;
  readonly byOrder: (a: R, b: R) => number;
}

/** The work of one key of one name, and what its limits remember. */
export interface KeyState<R> {
  readonly key: string;
  readonly pending: Set<R>;
  readonly running: Set<R>;
  /** When it had its last turn; the number puts turns of the same moment in order. */
  served: { readonly at: number; readonly number: number };
  rate: RateState;
  /** By which its last start was counted. */
  counted?: RateLimit;
}

export const newKey = <R>(key: string): KeyState<R> => ({
  key,
  pending: new Set(),
  running: new Set(),
  served: { at: 0, number: 0 },
  rate: NO_STARTS,
});

/** What a claim may take of a name, in turn. */
export interface KeyedPlan<R> {
  readonly rows: readonly R[];
  /** More could run, of these keys or of others. */
  readonly isMore: boolean;
  /** Present if keys hold up due work: when the first of it can run by itself, or null. */
  readonly heldUp?: Date | null;
}

interface Candidate<R> {
  readonly state: KeyState<R>;
  readonly queue: R[];
  running: number;
  rate: RateState;
  readyAt: number;
  turn: number;
}

const mostOf = ({ order, concurrency = Infinity }: KeyRule): number =>
  order === undefined ? concurrency : 1;

/**
 * The jobs of a key in their order, and the one that holds it although it is not due. A successor that waits for its
 * predecessor holds nothing.
 */
function queueOf<R>(
  { read, byTurn, byOrder }: KeyedKind<R>,
  rows: Iterable<R>,
  { order, whileRetrying = 'hold' }: KeyRule,
  isDue: (row: R) => boolean,
): { readonly queue: R[]; readonly holds?: R } {
  if (order === undefined) return { queue: [...rows].filter(isDue).sort(byTurn) };
  const holds = (row: R): boolean => {
    const { limitOrder, dueAt } = read(row);
    return whileRetrying === 'hold' && limitOrder !== undefined && dueAt < NEVER;
  };
  const queue = [...rows].filter((row) => isDue(row) || holds(row)).sort(byOrder);
  const [head] = queue;
  return head === undefined || isDue(head) ? { queue: queue.filter(isDue) } : { queue: [], holds: head };
}

export interface KeyedRequest<R> {
  readonly max: number;
  readonly now: number;
  readonly isDue: (row: R) => boolean;
  /** Absent: one start per turn, and as many turns as it takes. */
  readonly turns?: KeyTurns | undefined;
}

/** Plans up to `max` starts of a name, by turns of its keys; writes nothing. */
export function planKeyed<R>(
  kind: KeyedKind<R>,
  keys: Iterable<KeyState<R>>,
  rule: KeyRule,
  request: KeyedRequest<R>,
): KeyedPlan<R> {
  const { now, isDue } = request;
  const waits: (number | null)[] = [];
  const ready: Candidate<R>[] = [];
  for (const state of keys) {
    const { queue, holds } = queueOf(kind, state.pending, rule, isDue);
    if (holds !== undefined && [...state.pending].some(isDue))
      waits.push(state.running.size > 0 ? null : kind.read(holds).dueAt.getTime());
    const [head] = queue;
    if (head === undefined) continue;
    const { rate, served, running } = state;
    const candidate = { state, queue, running: running.size, rate, readyAt: 0, turn: served.number };
    const freeAt = blockedUntil(candidate, rule, now);
    candidate.readyAt = Math.max(kind.read(head).dueAt.getTime(), served.at, freeAt ?? 0);
    if (freeAt === null || freeAt > now) waits.push(freeAt);
    else ready.push(candidate);
  }
  const planned = takeTurns(ready, rule, request, waits);
  const times = waits.filter((at) => at !== null);
  if (waits.length === 0) return planned;
  return { ...planned, heldUp: times.length === 0 ? null : new Date(Math.min(...times)) };
}

/** When the key may start another: null if only after an end, 0 if at once. */
function blockedUntil(
  { running, rate }: Pick<Candidate<unknown>, 'running' | 'rate'>,
  rule: KeyRule,
  now: number,
): number | null {
  if (running >= mostOf(rule)) return null;
  if (rule.rate === undefined) return 0;
  const { granted, freeAt } = grantStarts(rate, rule.rate, { wanted: 1, now, withinMs: 0 });
  return granted === 1 ? 0 : freeAt;
}

function takeTurns<R>(
  ready: Candidate<R>[],
  rule: KeyRule,
  { max, now, turns: { each, most } = { each: 1, most: Infinity } }: KeyedRequest<R>,
  waits: (number | null)[],
): { readonly rows: readonly R[]; readonly isMore: boolean } {
  const rows: R[] = [];
  const queue = ready.sort((a, b) => a.readyAt - b.readyAt || a.turn - b.turn);
  for (let left = most; left > 0 && rows.length < max; left -= 1) {
    const candidate = queue.shift();
    if (candidate === undefined) break;
    const freeAt = takeTurn(candidate, rule, { most: Math.min(each, max - rows.length), now, rows });
    if (freeAt === 0) queue.push(candidate);
    else if (freeAt !== undefined) waits.push(freeAt);
  }
  return { rows, isMore: queue.length > 0 };
}

/** Adds up to `most` starts of a key. Returns as `blockedUntil`, or undefined if nothing of it is left. */
function takeTurn<R>(
  candidate: Candidate<R>,
  rule: KeyRule,
  { most, now, rows }: { readonly most: number; readonly now: number; readonly rows: R[] },
): number | null | undefined {
  let freeAt: number | null = 0;
  for (let left = most; left > 0 && freeAt === 0; left -= 1) {
    const row = candidate.queue.shift();
    if (row === undefined) return undefined;
    rows.push(row);
    candidate.running += 1;
    if (rule.rate !== undefined)
      candidate.rate = grantStarts(candidate.rate, rule.rate, { wanted: 1, now, withinMs: 0 }).state;
    freeAt = blockedUntil(candidate, rule, now);
  }
  return candidate.queue.length === 0 ? undefined : freeAt;
}

/** Counts a start of a key: its rate is used, and the others have their turn before it. */
export function countStart<R>(state: KeyState<R>, rule: KeyRule, now: number, number: number): void {
  state.served = { at: now, number };
  if (rule.rate === undefined) return;
  state.rate = grantStarts(state.rate, rule.rate, { wanted: 1, now, withinMs: 0 }).state;
  state.counted = rule.rate;
}

/** A start of a key, counted at that time, did not happen. */
export function uncountStart<R>(state: KeyState<R>, at: number): void {
  const { counted, rate } = state;
  if (counted === undefined) return;
  const slice = sliceMs(counted);
  state.rate = givenBack(rate, counted, [{ end: Math.ceil(at / slice) * slice, count: 1 }]);
}

/** True if nothing of the key is left, so that it may be forgotten. */
export const isIdle = ({ pending, running }: KeyState<unknown>): boolean =>
  pending.size === 0 && running.size === 0;

/** True if the key's rate still counts a start. */
export const isCounting = ({ rate }: KeyState<unknown>, rule: KeyRule, now: number): boolean =>
  rule.rate !== undefined && startsInWindow(rate, rule.rate, now) > 0;

/** Those that wait longest, or those that are asked for. */
export type KeysAsked = { readonly limit: number } | readonly string[];

const MOST_COUNTED = 1_000;

export function keyUses<R>(
  kind: KeyedKind<R>,
  all: Iterable<KeyState<R>>,
  now: Date,
  rule: KeyRule,
  which: KeysAsked,
): readonly KeyUse[] {
  const states = [...all];
  const isList = (value: typeof which): value is readonly string[] => Array.isArray(value);
  const chosen = isList(which) ? states.filter(({ key }) => which.includes(key)) : states;
  const uses = chosen.map((state) => useOf(kind, state, rule, now));
  if (isList(which)) return uses;
  const waiting = uses.filter(({ dueSince }) => dueSince !== undefined);
  const since = ({ dueSince }: KeyUse): number => dueSince?.getTime() ?? Infinity;
  return waiting.sort((a, b) => since(a) - since(b)).slice(0, which.limit);
}

function useOf<R>(
  kind: KeyedKind<R>,
  { key, pending, running, rate }: KeyState<R>,
  rule: KeyRule,
  now: Date,
): KeyUse {
  const { read } = kind;
  const due = [...pending].filter((row) => read(row).dueAt <= now);
  const [first] = due.map((row) => read(row).dueAt).sort((a, b) => a.getTime() - b.getTime());
  const freeAt =
    rule.rate === undefined
      ? 0
      : grantStarts(rate, rule.rate, { wanted: 0, now: now.getTime(), withinMs: 0 }).freeAt;
  const { queue, holds } = queueOf(kind, pending, rule, (row) => read(row).dueAt <= now);
  const next = rule.order === undefined ? undefined : ([...running][0] ?? holds ?? queue[0]);
  const head = next === undefined ? undefined : read(next).id;
  return {
    key,
    running: running.size,
    due: Math.min(due.length, MOST_COUNTED),
    ...(first === undefined ? {} : { dueSince: new Date(first) }),
    ...(freeAt > now.getTime() ? { rateFreeAt: new Date(freeAt) } : {}),
    ...(head === undefined ? {} : { head }),
    ...(holds === undefined || running.size > 0 ? {} : { headAt: new Date(read(holds).dueAt) }),
  };
}
