import type { EngineState } from '../engine/options.js';
import type { MillSettings } from './options.js';
import type { Shortage, WakeUp } from '../store/port.js';

export interface Health {
  readonly ok: boolean;
  /** Why it is not ok, in words. */
  readonly reasons: readonly string[];
  readonly store: string;
  readonly wakeUp: WakeUp | undefined;
  /** True while this instance plans reactive tasks for the cluster. */
  readonly leader: boolean;
  /** How often this instance, leading, found that changes had been missed for good, and had everything looked at again. */
  readonly historyLost: number;
  /**
   * What has gone wrong for long, in words: with the planning of reactive tasks, on the leader, with schedules of
   * documents, and with connections that calls have to wait for. It leaves `ok` alone: other work goes on, and a restart would mend nothing.
   */
  readonly troubles: readonly string[];
  readonly lastContactAt: Date | undefined;
  readonly running: number;
  readonly buffered: number;
  readonly abandoned: number;
  readonly claims: { readonly total: number; readonly empty: number; readonly short: number };
}

/** More silence than this share of a lease means that the store does not answer. */
const SILENT_SHARE = 2 / 3;

/** What can be said of an instance; `state` is undefined where it does not run. */
export function healthOf(
  store: string,
  state: EngineState | undefined,
  planning: Pick<Health, 'leader' | 'historyLost' | 'troubles'>,
  settings: MillSettings,
  shortage?: Shortage,
): Health {
  const waits = shortage !== undefined && shortage.stuckMs > settings.leaseMs * SILENT_SHARE;
  const reasons = [...complaints(state, settings), ...(waits ? [shortage.text] : [])];
  return {
    ok: reasons.length === 0,
    reasons,
    store,
    wakeUp: state?.wakeUp,
    ...planning,
    troubles: [...planning.troubles, ...(shortage === undefined ? [] : [shortage.text])],
    lastContactAt: state === undefined ? undefined : new Date(Date.now() - state.silentMs),
    running: state?.running ?? 0,
    buffered: state?.buffered ?? 0,
    abandoned: state?.abandoned ?? 0,
    claims: {
      total: state?.counters.claims ?? 0,
      empty: state?.counters.empty ?? 0,
      short: state?.counters.short ?? 0,
    },
  };
}

function complaints(state: EngineState | undefined, { leaseMs, maxAbandoned }: MillSettings): string[] {
  if (state === undefined) return ['not started'];
  const silent = state.silentMs > leaseMs * SILENT_SHARE;
  return [
    ...(state.leaseHeld ? [] : ['the lease of this instance is lost']),
    ...(silent ? [`the store has not answered for ${String(Math.round(state.silentMs / 1000))} s`] : []),
    ...(state.stuckMs > leaseMs * SILENT_SHARE
      ? [`one answer of the store has been awaited for ${String(Math.round(state.stuckMs / 1000))} s`]
      : []),
    ...(state.abandoned >= maxAbandoned
      ? [`${String(state.abandoned)} handlers ignore their timeout (maxAbandoned)`]
      : []),
    ...refusals(state.refused),
  ];
}

/** Each has a reason of its own; a database that refuses everything would name thousands. */
const MOST_NAMED = 3;

function refusals(refused: EngineState['refused']): string[] {
  if (refused.length === 0) return [];
  const named = refused.slice(0, MOST_NAMED).map(({ name, id, reason }) => `${name} ${id}: ${reason}`);
  const rest = refused.length > MOST_NAMED ? `; and ${String(refused.length - MOST_NAMED)} more` : '';
  return [`outcomes that the database refuses: ${String(refused.length)} (${named.join('; ')}${rest})`];
}
