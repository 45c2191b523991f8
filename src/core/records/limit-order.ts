/** The order of the jobs of one key: by due time at enqueue, then by enqueue. */

/** The due time is this many characters at the beginning. */
export const ORDER_DUE_DIGITS = 15;
export const ORDER_COUNT_DIGITS = 9;
let count = 0;

const digits = (value: number, length: number): string =>
  String(Math.max(0, Math.floor(value))).padStart(length, '0');

/**
 * Returns a text that sorts by due time, then by the time of the call, then by the order of calls in this process.
 * It is made and stored when the due time is given, so that neither a retry nor a later look at the clock changes it.
 */
export function orderOf(dueAt: number, calledAt: number): string {
  count = (count + 1) % 10 ** ORDER_COUNT_DIGITS;
  return `${digits(dueAt, ORDER_DUE_DIGITS)}-${digits(calledAt, ORDER_DUE_DIGITS)}-${digits(count, ORDER_COUNT_DIGITS)}`;
}

/** The same place at another due time. */
export const orderAt = (order: string, dueAt: number): string =>
  digits(dueAt, ORDER_DUE_DIGITS) + order.slice(ORDER_DUE_DIGITS);
