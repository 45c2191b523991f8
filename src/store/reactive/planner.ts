/** What outlives a leader: resume points, and what is known of tasks and definitions. */
import type { Instance, TaskAdvert } from '../work.js';
import type { Checkpoint, Term } from './feed.js';
import type { BlockedOfTask, PublishedPlan, TaskPlan, TaskState } from './plan.js';
import type { Source } from './source.js';
import type { DefinitionName } from './tasks.js';

interface PlannerState {
  /** Resume points by database; that of the store's own has the key ''. */
  readonly tokens: Readonly<Record<string, unknown>>;
}

/**
 * Definitions, leadership and progress: what outlives a leader. `saveState`, `saveCheckpoint` and `saveBlocked` compare
 * terms record by record: they refuse a leader once a later one has written that record. `load` and `saveTokens`
 * refuse it as soon as another one leads. After false, or undefined, a leader stops.
 */
export interface PlannerStore {
  /**
   * Keeps definitions in the registry: none → kept. One that is there stays; only `since` moves.
   * Returns an advert for each, in order, which the instance sends with each renewal. Repeat: the same adverts.
   * Caller: each instance with reactive tasks, at its start and for tasks that are added later; then it calls
   * `notifyPeers`.
   */
  publish(plans: readonly TaskPlan[]): Promise<readonly TaskAdvert[]>;
  /**
   * Returns definitions in the registry: all, or those of `which` that are there. Repeat: safe. Caller: the leader, and
   * management.
   */
  plans(which?: readonly DefinitionName[]): Promise<readonly PublishedPlan[]>;
  /** Returns the states of all tasks that a leader has planned. Repeat: safe. */
  states(): Promise<readonly TaskState[]>;
  /**
   * Writes the given fields of a task's state, and makes the state if there is none (a part of a missing state may be
   * dropped). `wanted` and `handlerVersion` become the greater of the stored and the given value, so requests of
   * others are kept.
   * Precondition: no later term has written this state.
   * Returns true, or false if a later one has. Repeat: safe.
   */
  saveState(term: Term, task: string, fields: Partial<TaskState>): Promise<boolean>;
  /**
   * Takes the lead: the term `from` → the next term, under this life. `from` undefined: no instance has ever led.
   * Precondition: the stored term is still `from`.
   * Returns the new term, or undefined if another instance was faster.
   * Repeat: undefined, although the first call may have succeeded; a look at the cluster shows that, and the election
   * takes one more term.
   * Caller: the election, once the last leader has resigned or was fenced.
   */
  lead(self: Instance, from: number | undefined): Promise<Term | undefined>;
  /**
   * Gives up the lead: the leader's life becomes null, its term stays.
   * Precondition: life and term lead. Repeat: no effect.
   * Caller: the leader at its stop; then it calls `notifyPeers`, so that another takes over at once.
   */
  resign(term: Term): Promise<void>;
  /** Returns the resume points, or undefined if life and term do not lead any more. Repeat: safe. */
  load(term: Term): Promise<PlannerState | undefined>;
  /**
   * Keeps resume points of the databases that are named; others stay. A store that deletes changes once they were
   * planned deletes them here.
   * Precondition: life and term lead. Returns whether they do. Repeat: safe.
   * Caller: the leader, after all before the point was planned, parked, blocked or asked for by `request`.
   */
  saveTokens(term: Term, tokens: Readonly<Record<string, unknown>>): Promise<boolean>;
  /** Returns how far the reconciliation of a source has come, or undefined if none is under way. Repeat: safe. */
  checkpoint(source: Source): Promise<Checkpoint | undefined>;
  /**
   * Keeps how far a reconciliation has come; undefined: it is over.
   * Precondition: no later term has written it. Returns true, or false if a later one has. Repeat: safe.
   */
  saveCheckpoint(term: Term, source: Source, checkpoint: Checkpoint | undefined): Promise<boolean>;
  /** Returns the blocked documents, by task; a list may be empty. Repeat: safe. Caller: a new leader, at its start. */
  blocked(): Promise<readonly BlockedOfTask[]>;
  /**
   * Keeps all blocked documents of one task, in place of what was kept before.
   * Precondition: no later term has written it. Returns true, or false if a later one has. Repeat: safe.
   * Caller: the leader, before a resume point moves past the changes of these documents.
   */
  saveBlocked(term: Term, documents: BlockedOfTask): Promise<boolean>;
  /**
   * Asks for reconciliation of these tasks, or of all: `wanted` + 1 in each state, with the reason. No term is needed.
   * Returns the names that are known, by state or by definition. A task without a state is only named: its first
   * registration looks at everything.
   * Repeat: `wanted` is raised once more, which costs at most one reconciliation.
   * Caller: `tasks.reconcile()`, and the leader whenever it may have missed something.
   */
  request(tasks: readonly string[] | undefined, reason: string): Promise<readonly string[]>;
  /**
   * Wakes every instance that listens, for tasks; with `news` also the instances that may plan. Repeat: safe.
   */
  notifyPeers(news: boolean): Promise<void>;
}
