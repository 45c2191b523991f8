import { ENDS, type Ended, type HeldUpBy, type MeasuredKind, type Meter } from '../core/meter.js';
import { MINUTE_MS, NO_ACTIVITY, type Cell, type Counts } from '../store/metrics.js';
import { Histogram, type Bounds } from './histogram.js';

type Writable<T> = { -readonly [Key in keyof T]: T[Key] };

/** The counts of one name since the process started, and its activity in the current minute. */
class Tally {
  readonly kind: MeasuredKind;
  readonly name: string;
  readonly wait: Histogram;
  readonly success: Histogram;
  readonly failure: Histogram;
  readonly ends: Record<Ended, number>;
  enqueued = 0;
  lost = 0;
  reclaimed = 0;
  cell: Writable<Cell> | undefined;

  constructor(kind: MeasuredKind, name: string, bounds: Bounds) {
    this.kind = kind;
    this.name = name;
    this.wait = new Histogram(bounds);
    this.success = new Histogram(bounds);
    this.failure = new Histogram(bounds);
    this.ends = Object.fromEntries(ENDS.map((end) => [end, 0])) as Record<Ended, number>;
  }

  fields(): Record<string, number> {
    const fields: Record<string, number> = {};
    for (const end of ENDS) if (this.ends[end] > 0) fields[end] = this.ends[end];
    for (const count of ['enqueued', 'lost', 'reclaimed'] as const)
      if (this[count] > 0) fields[count] = this[count];
    this.wait.fields('wait', fields);
    this.success.fields('success', fields);
    this.failure.fields('failure', fields);
    return fields;
  }
}

/** The activity of one minute. */
export interface Minute {
  readonly at: Date;
  readonly cells: readonly Cell[];
}

/** Beyond this many names, the rest are counted together: an application probably puts ids into names. */
export const MOST_NAMES = 1_000;
export const OTHERS = '(others)';
/** The most minutes kept until `takeMinutes`; older ones are dropped. */
const MOST_MINUTES = 60;
/** The series of counts that belong to no name. */
export const OWN_SERIES = 'instance:';
/** The series of a limit: this, and its scope. */
export const LIMIT_SERIES = 'limit:';

const seriesOf = (kind: MeasuredKind, name: string): string => `${kind}:${name}`;

/**
 * Counts in memory; each call only increments a few numbers. Counts only grow. Minutes with activity are kept until
 * `takeMinutes`.
 */
export class Counters implements Meter {
  readonly #bounds: Bounds;
  /** Called at the first activity after `takeMinutes`. */
  readonly #stirred: () => void;
  readonly #tallies: Readonly<Record<MeasuredKind, Map<string, Tally>>> = {
    job: new Map(),
    task: new Map(),
    document: new Map(),
  };
  readonly #own: Record<string, number> = {};
  /** By scope. */
  readonly #limits = new Map<string, Record<string, number>>();
  /** The current minute: when it began, and the tallies with activity in it. */
  #minute = 0;
  #touched: Tally[] = [];
  #isStirred = false;
  #past: readonly Minute[] = [];

  constructor(bounds: Bounds, stirred: () => void) {
    this.#bounds = bounds;
    this.#stirred = stirred;
  }

  enqueued(name: string, count: number): void {
    this.#tally('job', name).enqueued += count;
    this.#stir();
  }

  began(kind: MeasuredKind, name: string, due: number, at: number): void {
    const tally = this.#tally(kind, name);
    const waitMs = Math.max(0, at - due);
    tally.wait.observe(waitMs);
    const cell = this.#cell(tally, at);
    cell.started += 1;
    cell.waitMsSum += waitMs;
    if (waitMs > cell.waitMsMax) cell.waitMsMax = waitMs;
  }

  ended(kind: MeasuredKind, name: string, ended: Ended, at: number, runMs?: number): void {
    const tally = this.#tally(kind, name);
    tally.ends[ended] += 1;
    if (ended !== 'completed' && ended !== 'failed' && ended !== 'retried') return;
    const cell = this.#cell(tally, at);
    cell[ended === 'completed' ? 'done' : ended] += 1;
    if (runMs === undefined) return;
    (ended === 'completed' ? tally.success : tally.failure).observe(runMs);
    cell.runMsSum += runMs;
    if (runMs > cell.runMsMax) cell.runMsMax = runMs;
  }

  lost(kind: MeasuredKind, name: string): void {
    this.#tally(kind, name).lost += 1;
    this.#stir();
  }

  reclaimed(kind: MeasuredKind, name: string): void {
    this.#tally(kind, name).reclaimed += 1;
    this.#stir();
  }

  limitStarted(scope: string, count: number): void {
    this.#limit(scope, 'starts', count);
  }

  limitHeldUp(scope: string, by: HeldUpBy): void {
    this.#limit(scope, by, 1);
  }

  leaseLost(): void {
    this.#count('leasesLost', 1);
  }

  planned(changes: number): void {
    this.#count('plannedBatches', 1);
    this.#count('plannedChanges', changes);
  }

  reconciled(): void {
    this.#count('reconciliations', 1);
  }

  historyLost(): void {
    this.#count('historyLost', 1);
  }

  /** Everything counted since the process started. */
  counts(): Counts {
    const counts = new Map<string, Readonly<Record<string, number>>>();
    if (Object.keys(this.#own).length > 0) counts.set(OWN_SERIES, { ...this.#own });
    for (const [scope, fields] of this.#limits) counts.set(`${LIMIT_SERIES}${scope}`, { ...fields });
    for (const [kind, tallies] of Object.entries(this.#tallies))
      for (const [name, tally] of tallies) counts.set(seriesOf(kind as MeasuredKind, name), tally.fields());
    return counts;
  }

  /** Returns and forgets the minutes with new activity. The current minute is returned again if it grows. */
  takeMinutes(): readonly Minute[] {
    const minutes = this.#isStirred ? [...this.#past, ...this.#present()] : this.#past;
    this.#past = [];
    this.#isStirred = false;
    return minutes;
  }

  #limit(scope: string, what: string, count: number): void {
    const isNew = !this.#limits.has(scope);
    const text = isNew && this.#limits.size >= MOST_NAMES ? `${scope.split(':')[0] ?? ''}:${OTHERS}` : scope;
    const fields = this.#limits.get(text) ?? {};
    fields[what] = (fields[what] ?? 0) + count;
    this.#limits.set(text, fields);
    this.#stir();
  }

  #count(what: string, count: number): void {
    this.#own[what] = (this.#own[what] ?? 0) + count;
    this.#stir();
  }

  #stir(): void {
    if (this.#isStirred) return;
    this.#isStirred = true;
    this.#stirred();
  }

  #tally(kind: MeasuredKind, name: string): Tally {
    const tallies = this.#tallies[kind];
    return tallies.get(name) ?? this.#newTally(tallies, kind, name);
  }

  #newTally(tallies: Map<string, Tally>, kind: MeasuredKind, name: string): Tally {
    if (tallies.size >= MOST_NAMES && name !== OTHERS) return this.#tally(kind, OTHERS);
    const tally = new Tally(kind, name, this.#bounds);
    tallies.set(name, tally);
    return tally;
  }

  #cell(tally: Tally, at: number): Writable<Cell> {
    // If the clock was set back, activity counts towards the current minute.
    if (at >= this.#minute + MINUTE_MS) this.#turn(at);
    this.#stir();
    if (tally.cell !== undefined) return tally.cell;
    this.#touched.push(tally);
    return (tally.cell = newCell(tally));
  }

  #turn(at: number): void {
    if (this.#isStirred) this.#past = [...this.#past, ...this.#present()].slice(-MOST_MINUTES);
    for (const tally of this.#touched) tally.cell = undefined;
    this.#touched = [];
    this.#minute = Math.floor(at / MINUTE_MS) * MINUTE_MS;
  }

  #present(): readonly Minute[] {
    const cells = this.#touched.flatMap(({ cell }) => (cell === undefined ? [] : [{ ...cell }]));
    return cells.length === 0 ? [] : [{ at: new Date(this.#minute), cells }];
  }
}

const newCell = ({ kind, name }: Tally): Writable<Cell> => ({
  kind,
  name,
  ...NO_ACTIVITY,
});

/** The difference between two counts of the same process. Counts never fall, so no difference is negative. */
export function growth(now: Counts, before: Counts): Counts {
  const grown = new Map<string, Readonly<Record<string, number>>>();
  for (const [series, fields] of now) {
    const known = before.get(series) ?? {};
    const more = Object.entries(fields).flatMap(([field, value]): [string, number][] =>
      value > (known[field] ?? 0) ? [[field, value - (known[field] ?? 0)]] : [],
    );
    if (more.length > 0) grown.set(series, Object.fromEntries(more));
  }
  return grown;
}
