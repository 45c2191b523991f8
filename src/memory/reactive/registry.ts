/** What outlives a leader: definitions, leadership, resume points, and the progress of reconciliation. */
import { createHash } from 'node:crypto';
import type { Cluster, Leader } from '../../store/port.js';
import type {
  Checkpoint,
  PlannerStore,
  PublishedPlan,
  BlockedOfTask,
  Source,
  TaskPlan,
  TaskState,
  Term,
} from '../../store/reactive.js';
import { copyOf } from '../jobs/records.js';
import type { ChangeLog } from './log.js';
import { textOf } from './query/values.js';

export interface RegistryOptions {
  readonly now: () => Date;
  /** The end of the change log. */
  readonly position: () => number;
  readonly notifyPeers: (news: boolean) => void;
}

const digest = (text: string): string => createHash('sha256').update(text).digest('hex').slice(0, 32);

/** A value with the term of the leader that wrote it: a former leader cannot overwrite what its successor wrote. */
interface Termed<T> {
  readonly value: T;
  readonly term: number;
}

export class MemoryRegistry implements PlannerStore {
  readonly #options: RegistryOptions;
  readonly #published = new Map<string, PublishedPlan>();
  readonly #states = new Map<string, Termed<TaskState>>();
  readonly #checkpoints = new Map<string, Termed<Checkpoint | undefined>>();
  readonly #blocked = new Map<string, Termed<BlockedOfTask>>();
  #leader: Leader | undefined;
  #tokens: Readonly<Record<string, unknown>> = {};

  constructor(options: RegistryOptions) {
    this.#options = options;
  }

  get leader(): Leader | undefined {
    return this.#leader;
  }

  /** The names of all tasks that were ever defined. */
  get tasks(): readonly string[] {
    return [...new Set([...this.#published.values()].map(({ plan }) => plan.task))];
  }

  /** For tests: the position up to which changes are planned, as the next leader will read it. */
  get resumePoint(): number | undefined {
    const token = this.#tokens[''];
    return typeof token === 'number' ? token : undefined;
  }

  /** For tests: the definitions in force, and whether each still has a reconciliation to do. */
  get inForcePlans(): readonly { readonly plan: TaskPlan; readonly isBehind: boolean }[] {
    return [...this.#states].flatMap(([task, { value }]) => {
      const found = this.#published.get(`${task}:${value.definition}`);
      return found === undefined ? [] : [{ plan: found.plan, isBehind: value.wanted > value.done }];
    });
  }

  /** The tasks and collections that the leader has not caught up with, in words. */
  unplanned(log: ChangeLog): readonly string[] {
    const plans = [...this.#published.values()].map(({ plan }) => plan);
    const behind = plans.filter(({ task }) => {
      const state = this.#states.get(task)?.value;
      // A task that is left out waits for something other than the leader.
      return state === undefined || (state.wanted > state.done && !(state.leftOutSince instanceof Date));
    });
    const changed = new Set(log.from(this.resumePoint ?? log.end).map(({ collection }) => collection));
    const collections = plans.map(({ source }) => source.collection).filter((name) => changed.has(name));
    return [
      ...behind.map(({ task }) => `documents of task ${task} (not all checked)`),
      ...[...new Set(collections)].map((name) => `changes of ${name} (not all planned)`),
    ];
  }

  /** The trigger and version in force, by task. */
  get inForce(): NonNullable<Cluster['inForce']> {
    return new Map(
      [...this.#states].map(
        ([
          task,
          {
            value: { trigger, version },
          },
        ]) => [task, { trigger, version }],
      ),
    );
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

  async plans(): Promise<readonly PublishedPlan[]> {
    return [...this.#published.values()];
  }

  async states(): Promise<readonly TaskState[]> {
    return [...this.#states.values()].map(({ value }) => copyOf(value));
  }

  async saveState({ term }: Term, task: string, fields: Partial<TaskState>): Promise<boolean> {
    const known = this.#states.get(task);
    if (known !== undefined && known.term > term) return false;
    const highest = (field: 'wanted' | 'handlerVersion'): number =>
      Math.max(known?.value[field] ?? 0, fields[field] ?? 0);
    // Neither may fall: another instance may have requested a reconciliation since, and a version is never taken back.
    const raised = { wanted: highest('wanted'), handlerVersion: highest('handlerVersion') };
    const value = { ...known?.value, ...copyOf(fields), ...raised } as TaskState;
    this.#states.set(task, { value, term });
    return true;
  }

  async lead(
    self: { readonly instanceId: string; readonly life: string },
    from: number | undefined,
  ): Promise<Term | undefined> {
    if (this.#leader?.term !== from) return undefined;
    const term = (from ?? 0) + 1;
    this.#leader = { instanceId: self.instanceId, life: self.life, term };
    return { life: self.life, term };
  }

  async resign(term: Term): Promise<void> {
    if (this.#leader !== undefined && this.#leads(term)) this.#leader = { ...this.#leader, life: null };
  }

  async load(term: Term): ReturnType<PlannerStore['load']> {
    return this.#leads(term) ? { tokens: this.#tokens } : undefined;
  }

  async saveTokens(term: Term, tokens: Readonly<Record<string, unknown>>): Promise<boolean> {
    if (!this.#leads(term)) return false;
    this.#tokens = { ...this.#tokens, ...tokens };
    return true;
  }

  async checkpoint(source: Source): Promise<Checkpoint | undefined> {
    return this.#checkpoints.get(textOf(source))?.value;
  }

  async saveCheckpoint({ term }: Term, source: Source, value: Checkpoint | undefined): Promise<boolean> {
    const known = this.#checkpoints.get(textOf(source));
    if (known !== undefined && known.term > term) return false;
    this.#checkpoints.set(textOf(source), { value, term });
    return true;
  }

  async blocked(): Promise<readonly BlockedOfTask[]> {
    return [...this.#blocked.values()].map(({ value }) => value);
  }

  async saveBlocked({ term }: Term, documents: BlockedOfTask): Promise<boolean> {
    const known = this.#blocked.get(documents.task);
    if (known !== undefined && known.term > term) return false;
    this.#blocked.set(documents.task, { value: documents, term });
    return true;
  }

  async request(tasks: readonly string[] | undefined, reason: string): Promise<readonly string[]> {
    const meant = (task: string): boolean => tasks?.includes(task) ?? true;
    for (const [task, { value, term }] of this.#states)
      if (meant(task))
        this.#states.set(task, { value: { ...value, wanted: value.wanted + 1, reason }, term });
    // A task that is defined but has no state yet is included: its first registration reconciles everything anyway.
    return [...new Set([...this.#states.keys(), ...this.tasks])].filter(meant);
  }

  async notifyPeers(news: boolean): Promise<void> {
    this.#options.notifyPeers(news);
  }

  #leads({ life, term }: Term): boolean {
    return this.#leader?.life === life && this.#leader.term === term;
  }
}
