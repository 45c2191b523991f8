import { isAlive, type Cluster } from '../../store/port.js';
import type { DefinitionName, PublishedPlan, TaskPlan, TaskState } from '../../store/reactive/reactive.js';

/**
 * A task that no live instance has advertised for this long is not planned any more; when it comes back, it counts as
 * new.
 */
const RETIRED_MS = 7 * 86_400_000;

/**
 * The definitions that can be in force: those that live instances advertise, and the last ones of tasks that are still
 * planned. The registry may hold many others.
 */
export const definitionsInUse = (
  states: readonly TaskState[],
  cluster: Cluster,
): readonly DefinitionName[] => {
  const adverts = cluster.instances.filter(isAlive).flatMap(({ tasks }) => tasks);
  const last = states.filter((state) => !retired(state, cluster));
  const names = [...adverts, ...last].map(({ task, definition }) => ({ task, definition }));
  return [...new Map(names.map((name) => [`${name.task}\0${name.definition}`, name])).values()];
};

/** The plan in force for one task. */
export interface InForce {
  readonly published: PublishedPlan;
  readonly plan: TaskPlan;
  readonly state: TaskState | undefined;
  /** The definition that was in force last, if it is still known. */
  readonly last: TaskPlan | undefined;
  /** True if a live instance advertises it. */
  readonly seen: boolean;
}

/**
 * Chooses the definition in force for each task: among those that live instances advertise, the one with the highest
 * handler version, then the one that was first seen most recently. So an older deployment beside a newer one changes
 * nothing, and a rollback takes effect when the newer instances are gone. A task that no live instance advertises is
 * planned by its last definition for seven days: its service may only be down.
 */
export function plansInForce(
  published: readonly PublishedPlan[],
  states: readonly TaskState[],
  cluster: Cluster,
): ReadonlyMap<string, InForce> {
  const live = cluster.instances.filter(isAlive);
  const advertised = new Set(
    live.flatMap((one) => one.tasks.map((advert) => `${advert.task}\0${advert.definition}`)),
  );
  const byTask = new Map<string, PublishedPlan[]>();
  for (const one of published) byTask.set(one.plan.task, [...(byTask.get(one.plan.task) ?? []), one]);
  const inForce = new Map<string, InForce>();
  for (const [task, candidates] of byTask) {
    const state = states.find((one) => one.task === task);
    const seen = candidates.filter((one) => advertised.has(`${task}\0${one.id}`)).sort(newestFirst);
    const last = candidates.find((one) => one.id === state?.definition);
    const chosen = seen[0] ?? (retired(state, cluster) ? undefined : last);
    if (chosen !== undefined)
      inForce.set(task, {
        published: chosen,
        plan: chosen.plan,
        state,
        last: last?.plan,
        seen: seen.length > 0,
      });
  }
  return inForce;
}

/** True if no instance has run the task for so long that it is not planned any more. */
export const retired = (state: TaskState | undefined, cluster: Cluster): boolean =>
  state === undefined || isAway(state, cluster.now);

const isAway = (state: TaskState, now: Date): boolean =>
  now.getTime() - state.lastSeenAt.getTime() > RETIRED_MS;

const newestFirst = (a: PublishedPlan, b: PublishedPlan): number =>
  b.plan.evolution.handlerVersion - a.plan.evolution.handlerVersion ||
  b.firstSeenAt.getTime() - a.firstSeenAt.getTime();

/** How often `lastSeenAt` is updated in a task's state. */
const SEEN_EVERY_MS = 3_600_000;

/** The task is planned again. The reconciliation that was requested when it was left out finds what it missed. */
const BACK = { leftOutSince: null, leftOutReason: null } as const;

export interface Evolved {
  readonly state: TaskState;
  /** Which finished tasks must run again. */
  readonly reprocess?: 'reprocess_failed' | 'reprocess_all';
  readonly changed: boolean;
  /** Why all documents must be reconciled; only for a task that the cluster knows. */
  readonly request?: string;
  /** The cluster does not know the task, or has forgotten it. */
  readonly isNew: boolean;
}

/**
 * Compares a definition with the stored state. Only the leader does this, so that deployments do not fight over the
 * state.
 */
export function evolve({ published, plan, state, last, seen }: InForce, now: Date): Evolved {
  const { handlerVersion, onHandlerVersionChange, reconcileOnTriggerChange } = plan.evolution;
  const { id: definition, trigger } = published;
  const { task } = plan;
  const raised = state !== undefined && handlerVersion > state.handlerVersion;
  const reprocess = raised && onHandlerVersionChange !== 'none' ? { reprocess: onHandlerVersionChange } : {};
  if (state === undefined || isAway(state, now)) {
    const wanted = (state?.wanted ?? 0) + 1;
    return {
      state: {
        task,
        definition,
        trigger,
        version: handlerVersion,
        handlerVersion: Math.max(handlerVersion, state?.handlerVersion ?? 0),
        wanted,
        done: wanted - 1,
        reason: 'first registration',
        lastSeenAt: now,
        lastCleanedAt: now,
        ...(state === undefined ? {} : BACK),
      },
      // Finished tasks of an earlier version may still be there.
      ...reprocess,
      changed: true,
      isNew: true,
    };
  }
  const isBack = (state.leftOutSince ?? null) !== null;
  const request = reasonToLook(trigger !== state.trigger, reconcileOnTriggerChange, plan, last);
  const stale = seen && now.getTime() - state.lastSeenAt.getTime() > SEEN_EVERY_MS;
  return {
    state: {
      ...state,
      definition,
      trigger,
      version: handlerVersion,
      handlerVersion: Math.max(handlerVersion, state.handlerVersion),
      ...(request === undefined ? {} : { wanted: state.wanted + 1, reason: request }),
      lastSeenAt: stale ? now : state.lastSeenAt,
      ...(isBack ? BACK : {}),
    },
    ...reprocess,
    ...(request === undefined ? {} : { request }),
    changed: raised || stale || isBack || trigger !== state.trigger || definition !== state.definition,
    isNew: false,
  };
}

/**
 * Returns why a changed trigger requires a reconciliation, if it does. A task that moved to another collection always
 * requires one, whatever its options say: nothing there was planned by it.
 */
function reasonToLook(
  isChanged: boolean,
  reconcileOnTriggerChange: boolean,
  { source }: TaskPlan,
  last: TaskPlan | undefined,
): string | undefined {
  if (!isChanged) return undefined;
  const hasMoved =
    last === undefined ||
    last.source.collection !== source.collection ||
    (last.source.database ?? '') !== (source.database ?? '');
  if (hasMoved) return 'collection changed';
  return reconcileOnTriggerChange ? 'filter or watchProjection changed' : undefined;
}
