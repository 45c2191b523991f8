import type { PlannerStore, TaskState, Term } from '../store/reactive.js';

/** A task that a leader plans without. */
export interface LeftOut {
  readonly task: string;
  readonly reason: string;
}

/** What the registry says of a task that is left out; nothing where it is on record already. */
function leftOutFields(state: TaskState, reason: string, now: Date): Partial<TaskState> | undefined {
  const since = state.leftOutSince ?? undefined;
  if (since !== undefined && state.wanted > state.done) return undefined;
  // Raised in any case: a reconciliation under way began before, and its end must not count for what comes now.
  return {
    wanted: state.wanted + 1,
    reason: 'was left out',
    leftOutSince: since ?? now,
    leftOutReason: reason,
  };
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
    const fields = state && leftOutFields(state, reason, now);
    if (fields !== undefined && !(await planner.saveState(term, task, fields))) return false;
  }
  return true;
}
