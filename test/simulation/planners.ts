import type { MemoryStore } from '../../src/memory/index.js';
import { isIn } from '../../src/memory/reactive/partition.js';
import { textOf } from '../../src/memory/reactive/query/values.js';
import type { Partition } from '../../src/store/reactive/partitions.js';
import type { TaskState, Term } from '../../src/store/reactive/reactive.js';
import type { Judge } from './judge.js';
import type { SimulatedProcess } from './process.js';
import { checkResumePoints } from './resume-point.js';

interface Statement {
  readonly partition: Partition;
  readonly process: SimulatedProcess;
}

/**
 * Judges the leaders of partitions: who may plan which documents, who moves a resume point, and up to which version of
 * its handler the finished tasks of a partition were run again.
 */
export class PlannerJudge {
  readonly #store: MemoryStore;
  readonly #judge: Judge;
  /** For each partition in force, by task: the version for which its finished tasks were reset. */
  #versions: readonly Map<string, number>[] = [new Map()];
  /** Statements that plan and have not been answered. */
  readonly #underWay = new Set<Statement>();

  constructor(store: MemoryStore, judge: Judge) {
    this.#store = store;
    this.#judge = judge;
  }

  /**
   * A statement that plans has arrived. Only the leader of a partition plans its documents; an order to stop, or a change
   * of the number, is over only when no statement is under way. Whoever was silent for a lease is fenced instead, and
   * may be wrong for a moment.
   */
  plans(
    partition: Partition,
    process: SimulatedProcess,
    ids: readonly unknown[] = [],
    isLate: boolean,
  ): void {
    const stray = ids.find((id) => !isIn(partition, id));
    if (stray !== undefined)
      this.#judge.violated(`${process.name} planned ${textOf(stray)}, which is not in ${nameOf(partition)}`);
    const leader = this.#leaderOf(partition);
    if (isLate || this.#judge.mayBeBehind(process)) return;
    if (leader === undefined || leader.life === null || leader.instanceId !== process.name)
      this.#judge.violated(`${process.name} planned in ${nameOf(partition)}, which it does not lead`);
  }

  /** A process waits for the answer to a statement that plans. */
  async during<T>(partition: Partition, process: SimulatedProcess, statement: () => Promise<T>): Promise<T> {
    const one = { partition, process };
    this.#underWay.add(one);
    try {
      return await statement();
    } finally {
      this.#underWay.delete(one);
    }
  }

  /** A process leads from now on: that of before must have ended its statements. */
  led(partition: Partition, process: SimulatedProcess): void {
    if (partition.of > 1) this.#judge.count('leaders of partitions');
    this.#checkEnded(
      `${process.name} came to lead ${nameOf(partition)}`,
      (one) => one.partition.index === partition.index && one.process !== process,
    );
  }

  /** A resume point has moved. */
  reached(partition: Partition, { life, term }: Term): void {
    const leader = this.#leaderOf(partition);
    if (leader?.term !== term || leader.life !== life)
      this.#judge.violated(`the leader of term ${String(term)} moved the resume point of another`);
    if (partition.of > 1) this.#judge.count('resume points of partitions');
    checkResumePoints(this.#store, this.#judge);
  }

  /** Part of the state of a task is on record. */
  saved(partition: Partition, task: string, fields: Partial<TaskState>): void {
    const { leftOutSince, handlerVersion: version, done } = fields;
    if (leftOutSince instanceof Date) this.#judge.count('left out');
    if (done !== undefined) checkResumePoints(this.#store, this.#judge);
    const versions = this.#versions[partition.index];
    if (version === undefined || versions === undefined) return;
    const reset = versions.get(task) ?? version;
    this.#checkVersion(task, version, reset);
    versions.set(task, reset);
  }

  /** Finished tasks were reset for a version of their handler. */
  reprocessed(partition: Partition, task: string, version: number): void {
    this.#judge.count('reprocessed');
    const versions = this.#versions[partition.index];
    if (partition.of === this.#versions.length)
      versions?.set(task, Math.max(version, versions.get(task) ?? 0));
  }

  /** Another number of partitions is in force. A document may have come from any of the old ones. */
  divided(): void {
    const { partitions } = this.#store.reactive.opened.planner;
    this.#judge.count(`divided into ${String(partitions.length)}`);
    this.#checkEnded('the number of partitions changed', () => true);
    const lowest = new Map<string, number>();
    for (const versions of this.#versions)
      for (const [task, version] of versions)
        lowest.set(task, Math.min(version, lowest.get(task) ?? Infinity));
    this.#versions = partitions.map(() => new Map(lowest));
    for (const { plans } of partitions)
      for (const { state } of plans)
        this.#checkVersion(state.task, state.handlerVersion, lowest.get(state.task) ?? Infinity);
    checkResumePoints(this.#store, this.#judge);
  }

  /** A process that was silent for a lease is fenced instead, and may be wrong for a moment. */
  #checkEnded(what: string, isMeant: (one: Statement) => boolean): void {
    for (const one of this.#underWay)
      if (isMeant(one) && !this.#judge.mayBeBehind(one.process))
        this.#judge.violated(`${what} while ${one.process.name} planned in ${nameOf(one.partition)}`);
  }

  #checkVersion(task: string, version: number, reset: number): void {
    if (version > reset)
      this.#judge.violated(`${task} is on record as reprocessed for version ${String(version)}, and was not`);
  }

  #leaderOf({
    index,
    of,
  }: Partition):
    { readonly instanceId: string; readonly life: string | null; readonly term: number } | undefined {
    const { partitions } = this.#store.reactive.opened.planner;
    return partitions.length === of ? partitions[index]?.leader : undefined;
  }
}

const nameOf = ({ index, of }: Partition): string => `partition ${String(index)} of ${String(of)}`;
