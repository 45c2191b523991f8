import type { PlannerStore, TaskState, Term } from '../../store/reactive.js';

/** A task that a leader plans without. */
export interface LeftOut {
  readonly task: string;
  readonly reason: string;
}

/**
 * Records tasks that the leader plans without, before it does: from then on resume points move past their changes, and a
 * reconciliation finds those when the task comes back, whoever leads then. A task without a state needs no record: its
 * first registration looks at everything. False where somebody else leads.
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
    // Counted by the store: no reconciliation that began before, however often, answers this request.
    await planner.request([task], 'was left out');
    if (!(await planner.saveState(term, task, { leftOutSince: since ?? now, leftOutReason: reason })))
      return false;
  }
  return true;
}
