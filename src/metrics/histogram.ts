/** Upper bounds of buckets, in milliseconds, ascending; what is above the last one has a bucket of its own. */
export type Bounds = readonly number[];

/** How often values fell into each bucket, and what they come to together. */
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
    // Most values are small, and there are few buckets: this is quicker than halving.
    while (bucket < bounds.length && ms > (bounds[bucket] as number)) bucket += 1;
    this.counts[bucket] = (this.counts[bucket] as number) + 1;
    this.sumMs += ms;
  }

  /**
   * As fields of a series: `wait:250` counts values up to 250 ms and above the bound before it, `wait:inf` the rest.
   * They name their bounds, so that instances with other buckets may add theirs.
   */
  fields(prefix: string, into: Record<string, number>): void {
    for (const [bucket, count] of this.counts.entries())
      if (count > 0) into[`${prefix}:${String(this.#bounds[bucket] ?? 'inf')}`] = count;
    if (this.sumMs > 0) into[`${prefix}Ms`] = this.sumMs;
  }
}

/** A histogram read back from the fields of a series, with the buckets that are wanted. */
export interface ReadHistogram {
  /** How many values were at most as large as each bound. */
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
