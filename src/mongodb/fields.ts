import { ObjectId, type Document } from 'mongodb';
import type { FieldValues, Scalar } from '../core/fields.js';
import type { TimeRange } from '../store/port.js';

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
