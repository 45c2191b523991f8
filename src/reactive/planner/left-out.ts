import type { PlannerStore, TaskState, Term } from '../../store/reactive/reactive.js';

/** A task that the leader leaves out of planning. */
export interface LeftOut {
  readonly task: string;
  readonly reason: string;
}

/**
 * Records tasks that the leader leaves out, before it plans without them. From then on resume points move past their
 * changes, and a reconciliation finds these changes when the task comes back, whichever instance leads then. A task
 * without a state needs no record: its first registration reconciles everything. Returns false if another instance
 * leads.
 */
export async function recordLeftOut(
  planner: PlannerStore,
  term: Term,
  leftOut: readonly LeftOut[],
  states: readonly TaskState[],
  now: Date,
): Promise<boolean> {
  const known = new Map(states.map((state) => [state.task, state]));
  for (const { task, reason } of leftOut) {
    const state = known.get(task);
    if (state === undefined) continue;
    const since = state.leftOutSince ?? undefined;
    if (since !== undefined && state.wanted > state.done) continue;
    // The store counts requests, so no reconciliation that began earlier can satisfy this one.
    await planner.request([task], 'was left out');
    if (!(await planner.saveState(term, task, { leftOutSince: since ?? now, leftOutReason: reason })))
      return false;
  }
  return true;
}
