/** Turns points of single minutes and names into the lines of a chart. */
import type { SeriesPoint } from '../../index.js';
import type { Overview, WorkKind } from '../contract.js';

/** What happened to one name in one minute, with the page's names of kinds. */
export type Point = Omit<SeriesPoint, 'kind'> & { readonly kind: WorkKind };

const KIND = { job: 'jobs', task: 'tasks', document: 'documents' } as const;

export const toPoint = (point: SeriesPoint): Point => ({ ...point, kind: KIND[point.kind] });

export type Range = '15m' | '1h' | '6h' | '24h';

const MINUTE = 60_000;
const HOUR = 3_600_000;

/** The length of each range, the length of its steps, and how long it may be cached. */
export const RANGES: Readonly<
  Record<Range, { readonly lengthMs: number; readonly stepMs: number; readonly freshMs: number }>
> = {
  '15m': { lengthMs: 15 * MINUTE, stepMs: MINUTE, freshMs: 2_000 },
  '1h': { lengthMs: HOUR, stepMs: MINUTE, freshMs: 2_000 },
  '6h': { lengthMs: 6 * HOUR, stepMs: 5 * MINUTE, freshMs: 20_000 },
  '24h': { lengthMs: 24 * HOUR, stepMs: 15 * MINUTE, freshMs: 60_000 },
};

export interface Sum {
  started: number;
  done: number;
  failed: number;
  retried: number;
  waitMsSum: number;
  runMsSum: number;
}

const nothing = (): Sum => ({ started: 0, done: 0, failed: 0, retried: 0, waitMsSum: 0, runMsSum: 0 });

export function sumOf(points: readonly Point[]): Sum {
  const sum = nothing();
  for (const point of points) for (const key of Object.keys(sum) as (keyof Sum)[]) sum[key] += point[key];
  return sum;
}

const rounded = (ms: number, count: number): number | null =>
  count === 0 ? null : Math.round((ms / count) * 10) / 10;

export const waitMs = ({ waitMsSum, started }: Sum): number | null => rounded(waitMsSum, started);
export const runMs = ({ runMsSum, done, failed, retried }: Sum): number | null =>
  rounded(runMsSum, done + failed + retried);

/** The backlog of a step: the maximum of each name's minutes, summed over all names. */
function backlogOf(points: readonly Point[]): number | null {
  const most = new Map<string, number>();
  for (const { kind, name, backlog } of points)
    if (backlog !== undefined)
      most.set(`${kind} ${name}`, Math.max(backlog, most.get(`${kind} ${name}`) ?? 0));
  return most.size === 0 ? null : [...most.values()].reduce((sum, one) => sum + one, 0);
}

/** Returns the start of the first step. Steps are whole, and the last one contains the present. */
export function beginningOf(now: Date, range: Range): Date {
  const { lengthMs, stepMs } = RANGES[range];
  const end = Math.floor(now.getTime() / stepMs) * stepMs + stepMs;
  return new Date(end - lengthMs);
}

export function seriesOf(points: readonly Point[], now: Date, range: Range): Overview['series'] {
  const { lengthMs, stepMs } = RANGES[range];
  const from = beginningOf(now, range);
  const steps = Array.from({ length: lengthMs / stepMs }, (): Point[] => []);
  for (const point of points) steps[Math.floor((point.at.getTime() - from.getTime()) / stepMs)]?.push(point);
  const sums = steps.map(sumOf);
  return {
    stepMs,
    from: from.toISOString(),
    done: sums.map(({ done }) => done),
    failed: sums.map(({ failed }) => failed),
    retried: sums.map(({ retried }) => retried),
    waitMs: sums.map(waitMs),
    runMs: sums.map(runMs),
    backlog: steps.map(backlogOf),
  };
}
