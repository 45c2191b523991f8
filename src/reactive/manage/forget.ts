import { OptionError, TidemillError } from '../../core/errors.js';
import { show } from '../../core/options.js';
import { isAlive, type Store } from '../../store/port.js';
import { reactiveOf } from '../reactive-of.js';

/** How many records are deleted at once. */
const BATCH = 1_000;

/** Throws if a live instance runs the task: it would be defined again at once. */
async function refuseLive(store: Store, task: string): Promise<void> {
  const { instances } = await store.instances.list();
  const running = instances.filter((one) => isAlive(one) && one.tasks.some((advert) => advert.task === task));
  if (running.length === 0) return;
  const names = running.map(({ instanceId }) => instanceId).sort();
  throw new OptionError(
    `tasks.forget: live instances run the task ${show(task)}: ${names.join(', ')}. Deploy without it, or stop them, first.`,
  );
}

/**
 * Forgets a task that no live instance runs. Planning ends first, and definitions go last: until then, the same call
 * finishes what a crash has interrupted. Returns how many records were deleted.
 */
export async function forgetTask(store: Store, task: string): Promise<number> {
  const { forgetting, planner } = reactiveOf(store);
  await refuseLive(store, task);
  if (!(await forgetting.retire(task)))
    throw new TidemillError(
      'TASK_MISSING',
      `tasks.forget: no task ${show(task)} is known to the database. tasks.stats() lists those that are.`,
    );
  // The leader learns that the task is not planned any more.
  await planner.notifyPeers(true);
  let count = 0;
  for (let deleted = BATCH; deleted === BATCH; count += deleted)
    deleted = await forgetting.deleteRecords(task, BATCH);
  // Deleting may have taken long.
  await refuseLive(store, task);
  await forgetting.deleteDefinitions(task);
  await planner.notifyPeers(true);
  return count;
}
