/** Upper bounds of the buckets, in milliseconds, ascending. Values above the last bound have their own bucket. */
export type Bounds = readonly number[];

/** Counts values per bucket, and their sum. */
export class Histogram {
  readonly counts: number[];
  sumMs = 0;
  readonly #bounds: Bounds;

  constructor(bounds: Bounds) {
    this.#bounds = bounds;
    this.counts = new Array<number>(bounds.length + 1).fill(0);
  }

  observe(ms: number): void {
    const bounds = this.#bounds;
    let bucket = 0;
    // Most values are small and buckets are few: a linear scan is faster than a binary search.
    while (bucket < bounds.length && ms > (bounds[bucket] as number)) bucket += 1;
    this.counts[bucket] = (this.counts[bucket] as number) + 1;
    this.sumMs += ms;
  }

  /**
   * Adds the histogram to the fields of a series: `wait:250` counts values up to 250 ms and above the previous bound,
   * `wait:inf` the rest. Fields name their bound, so that counts of instances with different buckets can be added up.
   */
  fields(prefix: string, into: Record<string, number>): void {
    for (const [bucket, count] of this.counts.entries())
      if (count > 0) into[`${prefix}:${String(this.#bounds[bucket] ?? 'inf')}`] = count;
    if (this.sumMs > 0) into[`${prefix}Ms`] = this.sumMs;
  }
}

/** A histogram read from the fields of a series, for the requested buckets. */
export interface ReadHistogram {
  /** Cumulative: how many values are less than or equal to each bound. */
  readonly upTo: readonly number[];
  readonly count: number;
  readonly sumMs: number;
}

export function readHistogram(
  prefix: string,
  fields: Readonly<Record<string, number>>,
  bounds: Bounds,
): ReadHistogram {
  const upTo = bounds.map(() => 0);
  let count = 0;
  for (const [field, value] of Object.entries(fields)) {
    if (!field.startsWith(`${prefix}:`)) continue;
    const bound = Number(field.slice(prefix.length + 1).replace('inf', 'Infinity'));
    count += value;
    for (const [index, wanted] of bounds.entries())
      if (bound <= wanted) upTo[index] = (upTo[index] ?? 0) + value;
  }
  return { upTo, count, sumMs: fields[`${prefix}Ms`] ?? 0 };
}
