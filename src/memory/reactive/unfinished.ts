import { isPausedIn, type Cluster } from '../../store/port.js';
import type { ChangeLog } from './log.js';
import type { MemoryRegistry } from './registry.js';
import { cursorKey, isRunning, type TaskRow } from './tasks/row.js';
import type { TaskTable } from './tasks/table.js';

/** The work that is left at this moment, in words: tasks to run, documents to reconcile, changes to plan. */
export function unfinished(
  table: TaskTable,
  registry: MemoryRegistry,
  log: ChangeLog,
  { leader, instances }: Cluster,
): readonly string[] {
  const { brief, now, admits } = table.context;
  const { paused } = brief([]);
  const at = now();
  const isDue = (row: TaskRow): boolean =>
    row.status === 'pending' &&
    row.scheduledAt <= at &&
    !isPausedIn(paused, row.task) &&
    admits(cursorKey(row));
  const tasks = table
    .all((row) => isRunning(row) || isDue(row))
    .map((row) => `task ${row.key} (${row.status})`);
  // Without a leader nothing is planned, so there is no planning to wait for.
  const isLed = instances.some(({ life, dead }) => life === leader?.life && !dead);
  return isLed ? [...tasks, ...registry.unplanned(log)] : tasks;
}
