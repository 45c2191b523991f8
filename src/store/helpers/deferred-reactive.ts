/** Reactive tasks of a store that loads them on the first call. */
import { chosen, deferred, deferredPort, type Deferrable, type Lazy } from '../../core/lazily.js';
import {
  FORGETTING_METHODS,
  PAUSE_METHODS,
  PARTITIONING_METHODS,
  PLANNER_METHODS,
  PLAN_METHODS,
  TASK_METHODS,
  WORK_METHODS,
} from '../parts.js';
import type { Partitioning } from '../reactive/partitions.js';
import type { PlanStore, ReactiveStore } from '../reactive/reactive.js';

/** What is loaded. */
export type LoadedReactive<Tx> = Omit<ReactiveStore<Tx>, 'check' | 'useGlobals'> & {
  readonly partitioning: Partitioning;
};

export function deferReactive<Tx>(
  load: Lazy<LoadedReactive<Tx>>,
  /** The optional methods of `PlanStore` that the store has. */
  optional: readonly Deferrable<PlanStore>[],
): LoadedReactive<Tx> {
  const plans = [...PLAN_METHODS, ...optional];
  return {
    ...deferred(load, ['prepare']),
    planner: deferredPort(load, 'planner', PLANNER_METHODS),
    planning: deferredPort(load, 'planning', plans),
    forgetting: deferredPort(load, 'forgetting', FORGETTING_METHODS),
    partitioning: {
      ...deferredPort(load, 'partitioning', PARTITIONING_METHODS),
      within: (partition) => {
        const part = chosen(load, ({ partitioning }) => partitioning.within(partition));
        return {
          planner: deferredPort(part, 'planner', PLANNER_METHODS),
          planning: deferredPort(part, 'planning', plans),
        };
      },
    },
    tasks: (definitions) => {
      const tasks = chosen(load, (loaded) => loaded.tasks(definitions));
      return {
        cursorKey: (record) => loadedOf(tasks).cursorKey(record),
        ...deferred(tasks, [...WORK_METHODS, ...TASK_METHODS, ...PAUSE_METHODS]),
      };
    },
  };
}

/** A task comes from a call of its store, which was loaded for it. */
function loadedOf<P>(load: Lazy<P>): P {
  if (load.loaded !== undefined) return load.loaded;
  throw new Error('cursorKey was called with a task that this store did not return');
}
