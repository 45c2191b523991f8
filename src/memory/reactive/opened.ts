import {
  EVERYTHING,
  type Cluster,
  type ClusterBrief,
  type KeyRule,
  type KeyUse,
  type Leader,
} from '../../store/port.js';
import type { ForgettingStore } from '../../store/reactive/forgetting.js';
import type { Partition, Partitioning } from '../../store/reactive/partitions.js';
import type { LoadedReactive } from '../../store/helpers/deferred-reactive.js';
import type { PlanStore, TaskPlan, TaskStore } from '../../store/reactive/reactive.js';
import type { MemoryCollection } from '../collection.js';
import { keyUses, type KeysAsked } from '../limits/keys.js';
import type { MemoryTransaction } from '../transaction.js';
import { MemoryFeed } from './feed.js';
import type { ChangeLog } from './log.js';
import * as maintaining from './maintain.js';
import * as planning from './plan.js';
import { MemoryRegistry } from './registry.js';
import * as claiming from './tasks/claim.js';
import * as finding from './tasks/find.js';
import * as holding from './tasks/hold.js';
import { cursorKey, KEYED_TASKS } from './tasks/row.js';
import * as settling from './tasks/settle.js';
import { TaskTable } from './tasks/table.js';
import { unfinished } from './unfinished.js';

export interface MemoryReactiveOptions {
  readonly now: () => Date;
  readonly log: ChangeLog;
  readonly collection: (name: string) => MemoryCollection;
  readonly cluster: () => Cluster;
  readonly isEverythingPaused: () => boolean;
  readonly admits: (cursorKey: string) => boolean;
  readonly wake: () => void;
  readonly news: () => void;
}

/** Reactive tasks once they are loaded. Each method does its work before its first await. */
export class MemoryTaskStore implements LoadedReactive<MemoryTransaction> {
  readonly planner: MemoryRegistry;
  readonly planning: PlanStore;
  readonly partitioning: Partitioning;
  readonly forgetting: ForgettingStore;
  /** For tests: the task rows as they are stored. */
  readonly table: TaskTable;
  readonly #log: ChangeLog;
  readonly #options: MemoryReactiveOptions;
  /** Paused tasks, with the end of the pause; null if it has none. */
  readonly #pauses = new Map<string, Date | null>();

  constructor(options: MemoryReactiveOptions) {
    const { now, wake, news, log } = options;
    this.#options = options;
    this.#log = log;
    this.planner = new MemoryRegistry({
      now,
      position: () => log.end,
      notifyPeers: (isNews) => {
        wake();
        if (isNews) news();
      },
    });
    const table = new TaskTable({ ...options, brief: (tasks) => this.#brief(tasks) });
    this.table = table;
    this.planning = this.#planningOf({ index: 0, of: 1 });
    this.partitioning = {
      within: (partition) => ({
        planner: this.planner.within(partition),
        planning: this.#planningOf(partition),
      }),
      leaders: async () => this.planner.leaders,
      announce: (term, next) => this.planner.announce(term, next),
      divide: (term, division) => this.planner.divide(term, division),
    };
    this.forgetting = {
      retire: async (task) => {
        const rows = table.all((row) => row.task === task);
        this.#pauses.delete(task);
        return this.planner.retire(task) || rows.length > 0;
      },
      deleteRecords: async (task, limit) => {
        const rows = table.all((row) => row.task === task).slice(0, limit);
        for (const { key } of rows) table.rows.delete(key);
        return rows.length;
      },
      deleteDefinitions: async (task) => this.planner.deleteDefinitions(task),
    };
  }

  #planningOf(partition: Partition): PlanStore {
    const { table } = this;
    const log = this.#log;
    return {
      plan: (plan, ids, _limitMs, trace) => planning.plan(table, plan, ids, trace),
      unmatch: (plan, ids) => planning.unmatch(table, plan, ids),
      park: (plan, poisoned) => planning.park(table, plan, poisoned),
      documents: (source, after, limit) => maintaining.documents(table, source, after, limit, partition),
      size: async ({ collection }) => this.#options.collection(collection).size,
      known: (plan, after, limit) => maintaining.known(table, plan, after, limit, partition),
      clean: (plan, scope) => maintaining.clean(table, plan, scope, partition),
      reprocess: (plan, which) => maintaining.reprocess(table, plan, which, partition),
      historySince: async () => log.since,
      openFeed: async (request) => new MemoryFeed(log, request, partition),
    };
  }

  get leader(): Leader | undefined {
    return this.planner.leader;
  }

  /** The keys of a task, for people. */
  keyUses(task: string, rule: KeyRule, which: KeysAsked): readonly KeyUse[] {
    return keyUses(KEYED_TASKS, this.table.keysOf(task).values(), this.#options.now(), rule, which);
  }

  /** For `tidemill/testing`: the work that is left at this moment, in words. */
  unfinished(): readonly string[] {
    return unfinished(this.table, this.planner, this.#log, this.#options.cluster());
  }

  async prepare(plans: readonly TaskPlan[]): Promise<void> {
    for (const plan of plans) this.table.compile(plan);
  }

  tasks(plans: () => ReadonlyMap<string, TaskPlan>): TaskStore<MemoryTransaction> {
    const table = this.table;
    const { planner } = this;
    return {
      peek: (tasks) => claiming.peek(table, plans(), tasks),
      claim: (request) => claiming.claim(table, plans(), request),
      claimedUnder: (instance, token) => claiming.claimedUnder(table, plans(), instance, token),
      settle: (settlements) => settling.settle(table, settlements),
      settleIn: (settlement, transaction) => settling.settleIn(table, settlement, transaction),
      held: (leases) => holding.held(table, leases),
      settledUnder: (lease) => holding.settledUnder(table, lease),
      begin: (lease) => holding.begin(table, lease),
      heldBy: (instance, limit) => holding.heldBy(table, instance, limit),
      strays: (query) => holding.strays(table, query),
      fetch: (request) => holding.fetch(table, request),
      fetchAll: (request) => holding.fetchAll(table, request),
      find: (filter, page) => finding.find(table, filter, page),
      cursorKey,
      count: async (filter, most = Infinity) => Math.min(most, finding.select(table, filter).length),
      retryMany: async (filter) => maintaining.reset(table, finding.select(table, filter)),
      stats: (cap) => finding.stats(table, planner.tasks, cap),
      depths: (request) => finding.depths(table, planner.tasks, request),
      failures: (limit, task) => finding.failures(table, limit, task),
      document: async ({ key }) => {
        const row = table.rows.get(String(key));
        const document = row && table.document(row, row.sourceDocId);
        return document && { collection: row.collection, document };
      },
      pauses: async () => this.#paused(),
      pause: async (task, until) => this.#pause(task, until),
      resume: async (task) => {
        this.#pauses.delete(task);
        this.#options.wake();
      },
    };
  }

  /** A throttle neither ends a pause that has no end, nor shortens another throttle. */
  #pause(task: string, until: Date | undefined): void {
    const known = this.#pauses.get(task);
    if (until === undefined) this.#pauses.set(task, null);
    else if (known === undefined || (known !== null && known < until)) this.#pauses.set(task, until);
  }

  #paused(): ReadonlyMap<string, Date | null> {
    const now = this.#options.now();
    return new Map([...this.#pauses].filter(([, until]) => until === null || until > now));
  }

  /** What holds tasks up: pauses, and the definitions in force of the tasks asked about. */
  #brief(tasks: readonly string[]): ClusterBrief {
    const paused = this.#paused();
    const ends = [...paused.values()].flatMap((until) => until?.getTime() ?? []);
    return {
      now: this.#options.now(),
      paused: new Set([...paused.keys(), ...(this.#options.isEverythingPaused() ? [EVERYTHING] : [])]),
      ...(ends.length === 0 ? {} : { resumeAt: new Date(Math.min(...ends)) }),
      inForce: new Map([...this.planner.inForce].filter(([task]) => tasks.includes(task))),
    };
  }
}
