import { reasonOf } from '../../../core/errors.js';
import { show } from '../../../core/options.js';
import type { ClusterBrief, Lease } from '../../../store/port.js';
import type { Source, TaskPlan } from '../../../store/reactive/reactive.js';
import type { MemoryCollection } from '../../collection.js';
import { newKey, type KeyState } from '../../limits/keys.js';
import { compilePlan, type Compiled } from '../compile.js';
import { isRunning, placeOf, type TaskRow } from './row.js';
import type { Plain } from '../query/values.js';

/** What the tasks need of their store. */
export interface TaskContext {
  readonly now: () => Date;
  readonly collection: (name: string) => MemoryCollection;
  /** What holds tasks up. */
  readonly brief: (tasks: readonly string[]) => ClusterBrief;
  /** False for a task that a test holds back. */
  readonly admits: (cursorKey: string) => boolean;
  /** Called when a task becomes pending. */
  readonly wake: () => void;
}

/** The result of checking one document. `left`: it does not match. `fails`: filter or projection threw. */
export type Look =
  | { readonly outcome: 'gone' | 'left' }
  | { readonly outcome: 'matches'; readonly document: Plain; readonly snapshot: Plain }
  | { readonly outcome: 'fails'; readonly reason: string };

/** The tasks of all collections. The files beside this one have the transitions. */
export class TaskTable {
  readonly context: TaskContext;
  readonly rows: Map<string, TaskRow> = new Map();
  /** By task, then by key: what limits remember. The work of a key is read anew with each look. */
  readonly #keys = new Map<string, Map<string, KeyState<TaskRow>>>();
  /** How many turns keys have had. */
  turns = 0;
  readonly #compiled = new WeakMap<TaskPlan, Compiled>();

  constructor(context: TaskContext) {
    this.context = context;
  }

  row({ task, source }: TaskPlan, id: unknown): TaskRow | undefined {
    return this.rows.get(placeOf(source.collection, task, id));
  }

  keep(row: TaskRow): void {
    this.rows.set(row.key, row);
    if (row.status === 'pending') this.context.wake();
  }

  /** Returns the row if the lease still holds it. */
  holding({ key, token }: Lease): TaskRow | undefined {
    const row = this.rows.get(String(key));
    return row !== undefined && isRunning(row) && (row.leaseToken ?? null) === token ? row : undefined;
  }

  of({ task, source }: TaskPlan): TaskRow[] {
    return this.all((row) => row.task === task && row.collection === source.collection);
  }

  all(predicate: (row: TaskRow) => boolean): TaskRow[] {
    return [...this.rows.values()].filter(predicate);
  }

  /** The keys of a task with the work that each has. A name runs on one collection, and may still run on another. */
  keysOf(task: string, collection?: string): Map<string, KeyState<TaskRow>> {
    const keys = this.#keys.get(task) ?? new Map<string, KeyState<TaskRow>>();
    this.#keys.set(task, keys);
    for (const { pending, running } of keys.values()) {
      pending.clear();
      running.clear();
    }
    for (const row of this.rows.values()) {
      if (row.task !== task || !(row.status === 'pending' || isRunning(row))) continue;
      if (row.status === 'pending' && (collection ?? row.collection) !== row.collection) continue;
      const { limitKey = '' } = row;
      const state = keys.get(limitKey) ?? newKey<TaskRow>(limitKey);
      keys.set(limitKey, state);
      (row.status === 'pending' ? state.pending : state.running).add(row);
    }
    return keys;
  }

  document({ collection }: Source, id: unknown): Plain | undefined {
    return this.context.collection(collection).get(id);
  }

  /** Checks whether a document exists and matches, and takes the snapshot of its watched fields. */
  look(plan: TaskPlan, id: unknown): Look {
    const document = this.document(plan.source, id);
    if (document === undefined) return { outcome: 'gone' };
    const scope = { document, now: this.context.now() };
    const { matches, snapshot } = this.compile(plan);
    try {
      return matches(scope)
        ? { outcome: 'matches', document, snapshot: snapshot(scope) }
        : { outcome: 'left' };
    } catch (error) {
      return { outcome: 'fails', reason: reasonOf(error) };
    }
  }

  /** Compiles a definition, once; throws if it cannot be evaluated in memory. */
  compile(plan: TaskPlan): Compiled {
    const compiled = this.#compiled.get(plan) ?? compilePlan(`reactiveTask(${show(plan.task)})`, plan);
    this.#compiled.set(plan, compiled);
    return compiled;
  }
}
