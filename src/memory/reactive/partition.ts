import type { Leader } from '../../store/port.js';
import type { Partition } from '../../store/reactive/partitions.js';
import type {
  BlockedOfTask,
  Checkpoint,
  PlannerStore,
  Source,
  TaskState,
  Term,
} from '../../store/reactive/reactive.js';
import { copyOf } from '../jobs/records.js';
import { textOf } from './query/values.js';

/** A value with the term of the leader that wrote it: a former leader cannot overwrite what its successor wrote. */
interface Termed<T> {
  readonly value: T;
  readonly term: number;
}

/** Returns whether a document belongs to a partition, by a hash (FNV-1a) of the text of its id. */
export function isIn({ index, of }: Partition, id: unknown): boolean {
  if (of === 1) return true;
  let hash = 0x811c9dc5;
  for (const character of textOf(id)) {
    hash ^= character.codePointAt(0) ?? 0;
    hash = Math.imul(hash, 0x01000193);
  }
  return (hash >>> 0) % of === index;
}

type Kept = Omit<PlannerStore, 'publish' | 'plans' | 'request' | 'notifyPeers'>;

/** What the leader of one partition keeps: leadership, resume points, states, and the progress of reconciliation. */
export class MemoryPartition implements Kept {
  readonly #states = new Map<string, Termed<TaskState>>();
  readonly #checkpoints = new Map<string, Termed<Checkpoint | undefined>>();
  readonly #blocked = new Map<string, Termed<BlockedOfTask>>();
  #leader: Leader | undefined;
  #tokens: Readonly<Record<string, unknown>> = {};

  get leader(): Leader | undefined {
    return this.#leader;
  }

  get tokens(): Readonly<Record<string, unknown>> {
    return this.#tokens;
  }

  /** The position up to which changes are planned; undefined before the first. */
  get resumePoint(): number | undefined {
    const token = this.#tokens[''];
    return typeof token === 'number' ? token : undefined;
  }

  /** The states as they are stored, by task. */
  get stored(): ReadonlyMap<string, TaskState> {
    return new Map([...this.#states].map(([task, { value }]) => [task, value]));
  }

  async states(): Promise<readonly TaskState[]> {
    return [...this.#states.values()].map(({ value }) => copyOf(value));
  }

  async saveState({ term }: Term, task: string, fields: Partial<TaskState>): Promise<boolean> {
    const known = this.#states.get(task);
    if (known !== undefined && known.term > term) return false;
    // Of a task that was forgotten meanwhile, a part alone would be no state.
    if (known === undefined && fields.definition === undefined) return true;
    const highest = (field: 'wanted' | 'handlerVersion'): number =>
      Math.max(known?.value[field] ?? 0, fields[field] ?? 0);
    // Neither may fall: another instance may have requested a reconciliation since, and a version is never taken back.
    const raised = { wanted: highest('wanted'), handlerVersion: highest('handlerVersion') };
    const value = { ...known?.value, ...copyOf(fields), ...raised } as TaskState;
    this.#states.set(task, { value, term });
    return true;
  }

  /** Ends the planning of a task. Returns false if it was not planned. */
  retire(task: string): boolean {
    this.#blocked.delete(task);
    return this.#states.delete(task);
  }

  dropCheckpoint(source: Source): void {
    this.#checkpoints.delete(textOf(source));
  }

  /** Raises `wanted` of the tasks that are meant. */
  raise(meant: (task: string) => boolean, reason: string): void {
    for (const [task, { value, term }] of this.#states)
      if (meant(task))
        this.#states.set(task, { value: { ...value, wanted: value.wanted + 1, reason }, term });
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
    if (this.#leader !== undefined && this.leads(term)) this.#leader = { ...this.#leader, life: null };
  }

  async load(term: Term): ReturnType<PlannerStore['load']> {
    return this.leads(term) ? { tokens: this.#tokens } : undefined;
  }

  async saveTokens(term: Term, tokens: Readonly<Record<string, unknown>>): Promise<boolean> {
    if (!this.leads(term)) return false;
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
    return this.blockedNow;
  }

  get blockedNow(): readonly BlockedOfTask[] {
    return [...this.#blocked.values()].map(({ value }) => value);
  }

  async saveBlocked({ term }: Term, documents: BlockedOfTask): Promise<boolean> {
    const known = this.#blocked.get(documents.task);
    if (known !== undefined && known.term > term) return false;
    this.#blocked.set(documents.task, { value: documents, term });
    return true;
  }

  leads({ life, term }: Term): boolean {
    return this.#leader?.life === life && this.#leader.term === term;
  }

  /** Begins anew under a term that no instance holds: what an earlier leader still writes is refused. */
  begin(states: readonly TaskState[], tokens: Readonly<Record<string, unknown>>): void {
    const term = (this.#leader?.term ?? 0) + 1;
    this.#leader = { instanceId: this.#leader?.instanceId ?? '', life: null, term };
    this.#tokens = tokens;
    this.#states.clear();
    for (const state of states) this.#states.set(state.task, { value: copyOf(state), term });
    for (const key of this.#checkpoints.keys()) this.#checkpoints.set(key, { value: undefined, term });
    for (const task of this.#blocked.keys())
      this.#blocked.set(task, { value: { task, documents: [] }, term });
  }
}
