/**
 * Nanoseconds of CLOCK_MONOTONIC. On Linux all processes of a machine share that clock, so times taken in two
 * processes can be compared. Other systems do not guarantee that.
 */
export const nanos = (): bigint => process.hrtime.bigint();

export const sinceMs = (from: bigint, to: bigint = nanos()): number => Number(to - from) / 1e6;

export const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
