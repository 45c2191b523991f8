/**
 * Nanoseconds of CLOCK_MONOTONIC. On Linux that clock is one for all processes of the machine, so a time taken in one
 * process may be subtracted from one taken in another. Elsewhere that is not promised.
 */
export const nanos = (): bigint => process.hrtime.bigint();

export const sinceMs = (from: bigint, to: bigint = nanos()): number => Number(to - from) / 1e6;

export const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
