import type { Clock } from '../../core/clock.js';
import {
  dayOf,
  KEEP_COUNTS_DAYS,
  KEEP_MINUTES_MS,
  KEEP_SHARES_MS,
  NO_ACTIVITY,
  PEAKS,
  SUMS,
  type Cell,
  type Counts,
  type MetricsStore,
  type SeriesPoint,
  type SeriesQuery,
  type Share,
  type Shared,
  type Waiting,
} from '../../store/metrics.js';
import { copyOf } from '../jobs/records.js';

type Writable<T> = { -readonly [Key in keyof T]: T[Key] };

interface Series {
  readonly counts: Record<string, number>;
  /** The day on which it last grew. */
  day: number;
}

export class MemoryMetrics implements MetricsStore {
  readonly #clock: Clock;
  readonly #series = new Map<string, Series>();
  readonly #shares = new Map<string, { readonly share: Share; readonly at: number }>();
  /** By the start of the minute, then by the share that reported it. */
  readonly #minutes = new Map<number, Map<string, readonly Cell[]>>();
  readonly #waiting = new Map<number, readonly Waiting[]>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  async push(share: Share): Promise<void> {
    const now = this.#clock.now();
    if ((this.#shares.get(share.id)?.share.number ?? 0) >= share.number) return;
    this.#shares.set(share.id, { share: { ...share, vitals: copyOf(share.vitals) }, at: now });
    for (const [name, fields] of share.growth) {
      const series = this.#series.get(name) ?? { counts: {}, day: 0 };
      for (const [field, value] of Object.entries(fields))
        series.counts[field] = (series.counts[field] ?? 0) + value;
      series.day = dayOf(now);
      this.#series.set(name, series);
    }
  }

  async read(): Promise<{ readonly counts: Counts; readonly shares: readonly Shared[] }> {
    const now = this.#clock.now();
    return {
      counts: new Map([...this.#series].map(([name, { counts }]) => [name, { ...counts }])),
      shares: [...this.#shares.values()].map(({ share: { growth, number, ...share }, at }) => ({
        ...share,
        ageMs: now - at,
      })),
    };
  }

  async leave(id: string): Promise<void> {
    this.#shares.delete(id);
  }

  async saveMinutes(
    share: string,
    minutes: readonly { readonly at: Date; readonly cells: readonly Cell[] }[],
  ): Promise<void> {
    for (const { at, cells } of minutes) {
      const minute = this.#minutes.get(at.getTime()) ?? new Map<string, readonly Cell[]>();
      this.#minutes.set(at.getTime(), minute.set(share, copyOf(cells)));
    }
    this.#expire();
  }

  async saveWaiting(at: Date, waiting: readonly Waiting[]): Promise<void> {
    this.#waiting.set(at.getTime(), copyOf(waiting));
    this.#expire();
  }

  async series({ from, to, kind, name }: SeriesQuery): Promise<readonly SeriesPoint[]> {
    const points = new Map<string, Writable<SeriesPoint>>();
    const wanted = (at: number, one: Cell | Waiting): boolean =>
      at >= from.getTime() &&
      at <= to.getTime() &&
      (kind ?? one.kind) === one.kind &&
      (name ?? one.name) === one.name;
    const pointOf = (at: number, one: Cell | Waiting): Writable<SeriesPoint> => {
      const key = JSON.stringify([at, one.kind, one.name]);
      const point = points.get(key) ?? emptyPoint(at, one);
      points.set(key, point);
      return point;
    };
    for (const [at, byShare] of this.#minutes)
      for (const cell of [...byShare.values()].flat()) if (wanted(at, cell)) add(pointOf(at, cell), cell);
    for (const [at, waiting] of this.#waiting)
      for (const one of waiting)
        if (wanted(at, one)) Object.assign(pointOf(at, one), { backlog: one.due, lagMs: one.lagMs });
    return [...points.values()].sort(inOrder);
  }

  async forget(): Promise<void> {
    const now = this.#clock.now();
    for (const [id, { at }] of this.#shares) if (at < now - KEEP_SHARES_MS) this.#shares.delete(id);
    for (const [name, { day }] of this.#series)
      if (day < dayOf(now) - KEEP_COUNTS_DAYS) this.#series.delete(name);
  }

  #expire(): void {
    const oldest = this.#clock.now() - KEEP_MINUTES_MS;
    for (const kept of [this.#minutes, this.#waiting])
      for (const at of kept.keys()) if (at < oldest) kept.delete(at);
  }
}

function add(point: Writable<SeriesPoint>, cell: Cell): void {
  for (const field of SUMS) point[field] += cell[field];
  for (const field of PEAKS) point[field] = Math.max(point[field], cell[field]);
}

const emptyPoint = (at: number, { kind, name }: Cell | Waiting): Writable<SeriesPoint> => ({
  at: new Date(at),
  kind,
  name,
  ...NO_ACTIVITY,
});

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

const inOrder = (a: SeriesPoint, b: SeriesPoint): number =>
  a.at.getTime() - b.at.getTime() || compare(a.kind, b.kind) || compare(a.name, b.name);
