/** The value below which the given share of the values lies. */
function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? NaN;
}

export const median = (values: readonly number[]): number => percentile(values, 0.5);

export const round = (value: number, digits = 0): number => Number(value.toFixed(digits));

/** Summarizes latencies in milliseconds. */
export function summary(values: readonly number[]): {
  p50: number;
  p90: number;
  p99: number;
  max: number;
  samples: number;
} {
  const at = (share: number): number => round(percentile(values, share), 2);
  return {
    p50: at(0.5),
    p90: at(0.9),
    p99: at(0.99),
    max: round(Math.max(...values), 2),
    samples: values.length,
  };
}
