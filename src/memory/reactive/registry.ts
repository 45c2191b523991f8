/** What outlives a leader: definitions, leadership, resume points, and the progress of reconciliation. */
import { createHash } from 'node:crypto';
import type { InForce, Leader } from '../../store/port.js';
import type { Division, Partition } from '../../store/reactive/partitions.js';
import type {
  DefinitionName,
  PlannerStore,
  PublishedPlan,
  TaskPlan,
  TaskState,
  Term,
} from '../../store/reactive/reactive.js';
import { copyOf } from '../jobs/records.js';
import type { ChangeLog } from './log.js';
import { MemoryPartition } from './partition.js';
import { textOf } from './query/values.js';

export interface RegistryOptions {
  readonly now: () => Date;
  /** The end of the change log. */
  readonly position: () => number;
  readonly notifyPeers: (news: boolean) => void;
}

/** What the leader of one partition has on record, with the definitions in force there. */
export interface PartitionOnRecord {
  readonly partition: Partition;
  readonly leader: Leader | undefined;
  readonly resumePoint: number | undefined;
  readonly plans: readonly { readonly plan: TaskPlan; readonly state: TaskState }[];
}

const digest = (text: string): string => createHash('sha256').update(text).digest('hex').slice(0, 32);

/** The registry of the cluster, and the records of partition 0. Those of the other partitions are kept beside them. */
export class MemoryRegistry extends MemoryPartition implements PlannerStore {
  readonly #options: RegistryOptions;
  readonly #published = new Map<string, PublishedPlan>();
  /** The partitions from 1 on; those that are not in force any more keep their terms. */
  readonly #others = new Map<number, MemoryPartition>();
  #partitions = 1;
  #next: number | null = null;

  constructor(options: RegistryOptions) {
    super();
    this.#options = options;
  }

  override get leader(): Leader | undefined {
    const leader = super.leader;
    return leader && { ...leader, partitions: this.#partitions, next: this.#next };
  }

  /** Who leads the partitions from 1 on. */
  get leaders(): ReadonlyMap<number, Leader> {
    return new Map([...this.#others].flatMap(([index, { leader }]) => (leader ? [[index, leader]] : [])));
  }

  get #inForce(): readonly MemoryPartition[] {
    return [this, ...Array.from({ length: this.#partitions - 1 }, (_, at) => this.#other(at + 1))];
  }

  #other(index: number): MemoryPartition {
    const other = this.#others.get(index) ?? new MemoryPartition();
    this.#others.set(index, other);
    return other;
  }

  /** The names of all tasks that were ever defined. */
  get tasks(): readonly string[] {
    return [...new Set([...this.#published.values()].map(({ plan }) => plan.task))];
  }

  /** The position up to which changes are planned, as the next leaders will read it. */
  get #resumePoint(): number | undefined {
    const tokens = this.#inForce.map(({ resumePoint }) => resumePoint);
    return tokens.every((token) => token !== undefined) ? Math.min(...tokens) : undefined;
  }

  /** For tests: what the leader of each partition in force has on record. */
  get partitions(): readonly PartitionOnRecord[] {
    return this.#inForce.map(({ leader, resumePoint, stored }, index) => ({
      partition: { index, of: this.#partitions },
      leader,
      resumePoint,
      plans: [...stored.values()].flatMap((state) => {
        const found = this.#published.get(`${state.task}:${state.definition}`);
        return found === undefined ? [] : [{ plan: found.plan, state }];
      }),
    }));
  }

  #isBehind(task: string, counts: (state: TaskState) => boolean = () => true): boolean {
    return this.#inForce.some((partition) => {
      const state = partition.stored.get(task);
      return state === undefined || (state.wanted > state.done && counts(state));
    });
  }

  /** The tasks and collections that the leaders have not caught up with, in words. */
  unplanned(log: ChangeLog): readonly string[] {
    const plans = [...this.#published.values()].map(({ plan }) => plan);
    // A task that is left out waits for something other than the leader.
    const behind = plans.filter(({ task }) =>
      this.#isBehind(task, ({ leftOutSince }) => !(leftOutSince instanceof Date)),
    );
    const changed = new Set(log.from(this.#resumePoint ?? log.end).map(({ collection }) => collection));
    const collections = plans.map(({ source }) => source.collection).filter((name) => changed.has(name));
    return [
      ...behind.map(({ task }) => `documents of task ${task} (not all checked)`),
      ...[...new Set(collections)].map((name) => `changes of ${name} (not all planned)`),
    ];
  }

  /** The trigger and version in force, by task. */
  get inForce(): InForce {
    return new Map([...this.stored].map(([task, { trigger, version }]) => [task, { trigger, version }]));
  }

  async publish(plans: readonly TaskPlan[]): ReturnType<PlannerStore['publish']> {
    return plans.map((plan) => {
      const { task, source, filter = null, watchProjection = null, evolution } = plan;
      const definition = digest(textOf(plan));
      const trigger = digest(textOf([source, filter, watchProjection]));
      const key = `${task}:${definition}`;
      const firstSeenAt = this.#published.get(key)?.firstSeenAt ?? this.#options.now();
      const since = this.#options.position();
      this.#published.set(key, { id: definition, plan: copyOf(plan), trigger, firstSeenAt, since });
      return { task, definition, trigger, version: evolution.handlerVersion };
    });
  }

  async plans(which?: readonly DefinitionName[]): Promise<readonly PublishedPlan[]> {
    if (which === undefined) return [...this.#published.values()];
    return which.flatMap(({ task, definition }) => this.#published.get(`${task}:${definition}`) ?? []);
  }

  /** Ends the planning of a task. Returns false if it is unknown. */
  override retire(task: string): boolean {
    const known = [...this.#others.values()].map((partition) => partition.retire(task));
    return super.retire(task) || known.includes(true) || this.tasks.includes(task);
  }

  deleteDefinitions(task: string): void {
    for (const [key, { plan }] of this.#published) {
      if (plan.task !== task) continue;
      this.#published.delete(key);
      const others = [...this.#published.values()].map((other) => textOf(other.plan.source));
      if (others.includes(textOf(plan.source))) continue;
      for (const partition of [this, ...this.#others.values()]) partition.dropCheckpoint(plan.source);
    }
  }

  override async load(term: Term): ReturnType<PlannerStore['load']> {
    return this.#partitions === 1 ? super.load(term) : undefined;
  }

  async request(tasks: readonly string[] | undefined, reason: string): Promise<readonly string[]> {
    const meant = (task: string): boolean => tasks?.includes(task) ?? true;
    for (const partition of [this, ...this.#others.values()]) partition.raise(meant, reason);
    // A task that is defined but has no state yet is included: its first registration reconciles everything anyway.
    return [...new Set([...this.stored.keys(), ...this.tasks])].filter(meant);
  }

  async notifyPeers(news: boolean): Promise<void> {
    this.#options.notifyPeers(news);
  }

  /** The planner's records of one partition. */
  within({ index, of }: Partition): PlannerStore {
    const own = index === 0 ? this : this.#other(index);
    return {
      publish: (plans) => this.publish(plans),
      plans: () => this.plans(),
      states: () => own.states(),
      saveState: (term, task, fields) => own.saveState(term, task, fields),
      lead: (self, from) => own.lead(self, from),
      resign: (term) => own.resign(term),
      load: async (term) => (own.leads(term) && this.#partitions === of ? { tokens: own.tokens } : undefined),
      saveTokens: (term, tokens) => own.saveTokens(term, tokens),
      checkpoint: (source) => own.checkpoint(source),
      saveCheckpoint: (term, source, checkpoint) => own.saveCheckpoint(term, source, checkpoint),
      blocked: () => own.blocked(),
      saveBlocked: (term, documents) => own.saveBlocked(term, documents),
      request: async (tasks, reason) => {
        const known = await this.request(tasks, reason);
        if (of > 1) await this.notifyPeers(true);
        return known;
      },
      notifyPeers: (news) => this.notifyPeers(news),
    };
  }

  async announce(term: Term, next: number): Promise<boolean> {
    if (!this.leads(term)) return false;
    this.#next = next;
    return true;
  }

  async divide(term: Term, { from, to, ended, merge }: Division): Promise<boolean> {
    const isEnded = [...this.leaders].every(
      ([index, leader]) => leader.life === null || ended.get(index) === leader.term,
    );
    if (!this.leads(term) || this.#partitions !== from || !isEnded) return false;
    const old = this.#inForce;
    const states = merge(
      old.map((partition) => ({ states: [...partition.stored.values()], blocked: partition.blockedNow })),
    );
    const point = this.#resumePoint;
    const tokens = point === undefined ? {} : { '': point };
    this.#partitions = to;
    this.#next = null;
    for (const partition of new Set([...old, ...this.#inForce])) partition.begin(states, tokens);
    return true;
  }
}
