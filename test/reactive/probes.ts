/** How far planner and workers have come. Probes are a separate collection whose tasks do nothing. */
import type { Task, TaskStatus, Tidemill } from '../../src/index.js';
import type { Store } from '../../src/store/port.js';
import { until } from '../support/mills.js';

export interface Probes {
  readonly write: (id: string) => Promise<unknown>;
  readonly isPlanned: (id: string) => Promise<boolean>;
}

/**
 * Waits until the planner has planned everything that was written before. The tasks of one batch are planned
 * concurrently, in any order; so a second probe, written after the first was seen, proves that the whole batch is done.
 */
export function plannedUpTo({ write, isPlanned }: Probes): () => Promise<void> {
  let written = 0;
  const one = async (): Promise<void> => {
    written += 1;
    const id = `probe-${String(written)}`;
    await write(id);
    await until('the planner has come this far', () => isPlanned(id));
  };
  return async () => {
    await one();
    await one();
  };
}

/**
 * Starts a mill, and waits until the documents of its task were reconciled once: from here on only changes are planned.
 * A later reconciliation may touch a running task.
 */
export async function startedUp<S extends Store>(mill: Tidemill<S>, task: string): Promise<void> {
  let isOver = false;
  mill.on('reconcile:complete', ({ tasks }) => (isOver ||= tasks.includes(task)));
  await mill.start();
  await until(`${task} was looked at once`, () => isOver);
}

/** Defines the task that `planned()` waits for; it does nothing. */
export const withProbeTask = <S extends Store>(mill: Tidemill<S>): Promise<void> =>
  mill.reactiveTask({ task: 'probe', collection: 'probes', debounce: 0, handler: () => undefined });

/** Waits until a task is in a state. */
export const reaches = <S extends Store>(
  mill: Tidemill<S>,
  task: string,
  id: unknown,
  status: TaskStatus,
): Promise<Task> =>
  until(`task ${task} of ${String(id)} is ${status}`, async () => {
    const found = await mill.tasks.get(task, id);
    return found?.status === status && found;
  });

/** The statuses in the history, in order. */
export const statusesOf = (task: Task | undefined): readonly string[] =>
  (task?.executionHistory ?? []).map((entry) => entry.status);
