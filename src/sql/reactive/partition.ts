import type { Partition } from '../../store/reactive/partitions.js';
import type { ReactiveNames } from './names.js';

export const WHOLE: Partition = { index: 0, of: 1 };

/** A SQL condition: the row whose key has this text belongs to the partition. */
export const inPartition = ({ index, of }: Partition, key: string): string =>
  of === 1 ? 'true' : `(hashtext(${key}) & 2147483647) % ${String(of)} = ${String(index)}`;

/** Where the records of a partition are. Those of partition 0 are where older versions look for them. */
interface PartitionTables {
  /** The table that names the leader, and a condition for the row of this partition. */
  readonly leaders: string;
  readonly leader: string;
  readonly states: string;
  /** A condition for the states of this partition. */
  readonly own: string;
  /** Precedes the names of checkpoints. */
  readonly prefix: string;
}

/** Precedes the names of checkpoints. */
export const prefixOf = ({ index }: Partition): string => (index === 0 ? '' : `partition ${String(index)}:`);

export const tablesOf = (names: ReactiveNames, partition: Partition): PartitionTables =>
  partition.index === 0
    ? {
        leaders: names.planner,
        leader: 'one',
        states: names.states,
        own: 'true',
        prefix: prefixOf(partition),
      }
    : {
        leaders: names.partitions,
        leader: `partition = ${String(partition.index)}`,
        states: names.partitionStates,
        own: `partition = ${String(partition.index)}`,
        prefix: prefixOf(partition),
      };
