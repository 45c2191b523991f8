import type { Lazy } from '../../core/lazily.js';
import { deferReactive } from '../../store/helpers/deferred-reactive.js';
import type { ForgettingStore } from '../../store/reactive/forgetting.js';
import type { Parts } from '../../store/parts.js';
import type { Partitioning } from '../../store/reactive/partitions.js';
import type { KeyUse, Leader } from '../../store/port.js';
import type {
  PlannerStore,
  PlanStore,
  ReactiveStore,
  TaskPlan,
  TaskStore,
} from '../../store/reactive/reactive.js';
import type { MemoryTransaction } from '../transaction.js';
import { compilePlan } from './compile.js';
import type { ChangeLog } from './log.js';
import type { MemoryReactiveOptions, MemoryTaskStore } from './opened.js';

/**
 * Reactive tasks on the collections of a memory store. Definitions are checked here; opened.ts has the rest, which is
 * loaded on the first call.
 */
export class MemoryReactive implements ReactiveStore<MemoryTransaction> {
  readonly planner: PlannerStore;
  readonly planning: PlanStore;
  readonly partitioning: Partitioning;
  readonly forgetting: ForgettingStore;
  readonly tasks: (plans: () => ReadonlyMap<string, TaskPlan>) => TaskStore<MemoryTransaction>;
  /** For tests: the changes as they are stored. */
  readonly log: ChangeLog;
  readonly #open: Lazy<MemoryTaskStore>;

  constructor(options: MemoryReactiveOptions, parts: Parts) {
    this.#open = parts.add(async () => {
      const { MemoryTaskStore } = await import('./opened.js');
      return new MemoryTaskStore(options);
    });
    this.log = options.log;
    const late = deferReactive(this.#open, ['historySince']);
    this.planner = late.planner;
    this.planning = late.planning;
    this.partitioning = late.partitioning;
    this.forgetting = late.forgetting;
    this.tasks = late.tasks;
  }

  /** Nobody leads before the first call of this port. */
  get leader(): Leader | undefined {
    return this.#open.loaded?.leader;
  }

  /** For tests: what is loaded. */
  get opened(): MemoryTaskStore {
    if (this.#open.loaded !== undefined) return this.#open.loaded;
    throw new Error('nothing is loaded yet: await store.loadParts()');
  }

  /** The keys of a task, for people; none before the first call of this port. */
  keyUses(...asked: Parameters<MemoryTaskStore['keyUses']>): readonly KeyUse[] {
    return this.#open.loaded?.keyUses(...asked) ?? [];
  }

  /** For `tidemill/testing`: the work that is left at this moment, in words. */
  unfinished(): readonly string[] {
    return this.#open.loaded?.unfinished() ?? [];
  }

  async prepare(plans: readonly TaskPlan[]): Promise<void> {
    await (await this.#open()).prepare(plans);
  }

  useGlobals(): void {
    // The memory store keeps coordination documents in no collection.
  }

  check(where: string, plan: TaskPlan): TaskPlan {
    compilePlan(where, plan);
    return plan;
  }
}
