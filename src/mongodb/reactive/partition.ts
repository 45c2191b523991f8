import type { Document } from 'mongodb';
import type { Partition } from '../../store/reactive/partitions.js';

export const WHOLE: Partition = { index: 0, of: 1 };

/**
 * A condition for `$match`: the id in a field belongs to the partition. The hash depends on the stored value only, never
 * on a collation, and equal numbers of different types have the same. The rest of a negative number is negative.
 */
export function inPartition({ index, of }: Partition, field: string): Document {
  if (of === 1) return {};
  const rest = { $mod: [{ $toHashedIndexKey: field }, of] };
  return { $expr: { $in: [rest, index === 0 ? [0] : [index, index - of]] } };
}
