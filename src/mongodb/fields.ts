import { ObjectId, type Document } from 'mongodb';
import type { FieldValues, Scalar } from '../core/fields.js';
import type { TimeRange } from '../store/port.js';
import { isTimeLimit } from './errors.js';

export const rangeQuery = ({ from, to }: TimeRange): Document => ({
  ...(from === undefined ? {} : { $gte: from }),
  ...(to === undefined ? {} : { $lte: to }),
});

/**
 * Returns the stored values that a given value may stand for. 24 hex digits may also be an ObjectId, since the two look
 * alike to people.
 */
export const spelled = (value: Scalar): readonly unknown[] =>
  typeof value === 'string' && /^[0-9a-f]{24}$/iu.test(value) ? [value, new ObjectId(value)] : [value];

/** Null matches null only, not a missing field. */
const condition = (value: Scalar): Document =>
  value === null ? { $type: 'null' } : { $in: [...spelled(value)] };

/** Turns paths and values, which are already checked, into a query. No value is ever read as an operator. */
export const fieldsQuery = (fields: FieldValues, below?: string): Document =>
  Object.fromEntries(
    Object.entries(fields).map(([path, value]) => [
      below === undefined ? path : `${below}.${path}`,
      condition(value),
    ]),
  );

/** The pattern that finds a text itself, without regard to case. */
export const containing = (text: string): Document => ({
  $regex: text.replace(/[\\^$.*+?()[\]{}|]/gu, String.raw`\$&`),
  $options: 'i',
});

/** A query that no index serves stops after this long: a list has what was found, and a count fails. */
export const TIME_LIMIT_MS = 5_000;

/** Reads what a cursor returns until its time limit; `partial` if that came first. */
export async function readPartly<Row>(
  cursor: AsyncIterable<Row>,
): Promise<{ readonly rows: readonly Row[]; readonly partial: boolean }> {
  const rows: Row[] = [];
  try {
    for await (const row of cursor) rows.push(row);
  } catch (error) {
    if (!isTimeLimit(error)) throw error;
    return { rows, partial: true };
  }
  return { rows, partial: false };
}
