/**
 * The port of planning in several partitions: the documents of all sources divided by a hash of their ids, each
 * partition planned by one leader of its own. Optional: with a store that lacks it there is one partition, the whole.
 * Partition 0 exists always, and is what `ReactiveStore.planner` and `ReactiveStore.planning` plan as long as it is
 * the only one. Its record also holds how many there are.
 */
import type { BlockedOfTask, PlannerStore, PlanStore, TaskState, Term } from './reactive.js';
import type { Leader } from '../work.js';

/** There are never more partitions than this. */
export const MOST_PARTITIONS = 64;

/** One of `of` parts of all documents: those whose hashed id leaves the rest `index`. */
export interface Partition {
  readonly index: number;
  readonly of: number;
}

/** Planning as the leader of one partition sees it. */
export interface PartitionStore {
  /**
   * As `ReactiveStore.planner`, with records of this partition: leadership, resume points, states, checkpoints and
   * blocked documents. `load` also refuses a leader if there are not `of` partitions in force. `request` asks in every
   * partition, and lets the others know.
   */
  readonly planner: PlannerStore;
  /** As `ReactiveStore.planning`, with changes, documents and tasks of this partition only. */
  readonly planning: PlanStore;
}

/** What one partition has on record when the number of partitions changes. */
export interface PartitionRecords {
  readonly states: readonly TaskState[];
  readonly blocked: readonly BlockedOfTask[];
}

/** A change of the number of partitions. */
export interface Division {
  readonly from: number;
  readonly to: number;
  /** The terms of the partitions from 1 on whose leaders have resigned or are fenced; without those that had none. */
  readonly ended: ReadonlyMap<number, number>;
  /** Returns the states with which each of the new partitions begins. Pure: it may be called again. */
  readonly merge: (records: readonly PartitionRecords[]) => readonly TaskState[];
}

/** How many partitions there are, and who leads them. */
export interface Partitioning {
  /** Returns the store of one partition. Cheap; no call to the database. */
  within(partition: Partition): PartitionStore;
  /** Returns who leads the partitions from 1 on, by index; without those that no instance ever led. Repeat: safe. */
  leaders(): Promise<ReadonlyMap<number, Leader>>;
  /**
   * Notes that the number of partitions is about to become `next`; `Leader.next` tells the others, which then resign.
   * Precondition: life and term lead partition 0. Returns whether they do. Repeat: safe.
   * Caller: the leader of partition 0, before `divide`.
   */
  announce(term: Term, next: number): Promise<boolean>;
  /**
   * Puts another number of partitions into force, in one transaction: each begins with the merged states and the
   * lowest of all resume points, without checkpoints and blocked documents; all terms end, that of the caller included.
   * Precondition: life and term lead partition 0, `from` is in force, and no term in `ended` was followed by another.
   * Returns whether it was done. Repeat: false.
   * Caller: the leader of partition 0, once its own planner has stopped.
   */
  divide(term: Term, division: Division): Promise<boolean>;
}

/** What a store adds to `ReactiveStore` if several leaders may plan at once. */
export interface Partitioned {
  /** Absent: one leader plans everything. */
  readonly partitioning?: Partitioning;
}
