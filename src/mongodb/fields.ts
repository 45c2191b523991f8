import { ObjectId, type Document } from 'mongodb';
import type { FieldValues, Scalar } from '../core/fields.js';
import type { TimeRange } from '../store/port.js';

export const rangeQuery = ({ from, to }: TimeRange): Document => ({
  ...(from === undefined ? {} : { $gte: from }),
  ...(to === undefined ? {} : { $lte: to }),
});

/** What a value may be in a document: 24 hex digits may stand for an ObjectId, since people see both alike. */
export const spelled = (value: Scalar): readonly unknown[] =>
  typeof value === 'string' && /^[0-9a-f]{24}$/iu.test(value) ? [value, new ObjectId(value)] : [value];

/** Null is null, and not "missing". */
const condition = (value: Scalar): Document =>
  value === null ? { $type: 'null' } : { $in: [...spelled(value)] };

/** Paths and values, checked before, as a query; none of them is ever read as an operator. */
export const fieldsQuery = (fields: FieldValues, below?: string): Document =>
  Object.fromEntries(
    Object.entries(fields).map(([path, value]) => [
      below === undefined ? path : `${below}.${path}`,
      condition(value),
    ]),
  );
