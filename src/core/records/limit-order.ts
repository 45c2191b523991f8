/** The order of the jobs of one key: by due time at enqueue, then by enqueue. */
const DIGITS = 15;
const COUNT_DIGITS = 9;
let count = 0;

const digits = (value: number, length: number): string =>
  String(Math.max(0, Math.floor(value))).padStart(length, '0');

/**
 * Returns a text that sorts by due time, then by the time of the call, then by the order of calls in this process.
 * It is made once and stored, so that neither a retry nor a later look at the clock changes it.
 */
export function orderOf(dueAt: number, calledAt: number): string {
  count = (count + 1) % 10 ** COUNT_DIGITS;
  return `${digits(dueAt, DIGITS)}-${digits(calledAt, DIGITS)}-${digits(count, COUNT_DIGITS)}`;
}
