import type { EngineState } from '../../engine/options.js';
import type { MillSettings } from '../options.js';
import type { Shortage, WakeUp } from '../../store/port.js';

export interface Health {
  readonly ok: boolean;
  /** Why `ok` is false, in words. */
  readonly reasons: readonly string[];
  /** The kind of store, such as `mongodb`. */
  readonly store: string;
  /** How this instance learns of new work; undefined while stopped. */
  readonly wakeUp: WakeUp | undefined;
  /** True while `mill.pause()` keeps all work of the cluster from starting, as this instance last heard. */
  readonly paused: boolean;
  /** True while this instance plans reactive tasks for the cluster. */
  readonly leader: boolean;
  /** How often this instance, as leader, found that changes were lost for good, and requested a full reconciliation. */
  readonly historyLost: number;
  /**
   * Problems that persist, in words: an outage of the database, and those with planning reactive tasks (on the leader),
   * with document schedules, and with connections that calls have to wait for. They leave `ok` true, since other work continues and a restart would not
   * help. Only if the store's own statements have waited for a connection for two thirds of a lease is `ok` false as
   * well.
   */
  readonly troubles: readonly string[];
  /** When the store last answered; undefined while stopped. */
  readonly lastContactAt: Date | undefined;
  /** Handlers that run. */
  readonly running: number;
  /** Work that was claimed ahead and waits for a free slot. */
  readonly buffered: number;
  /** Handlers that run past their timeout. */
  readonly abandoned: number;
  /** Claims so far: `empty` lost all that they tried to take to other instances, `short` lost some of it. */
  readonly claims: { readonly total: number; readonly empty: number; readonly short: number };
}

/** A store that is silent for more than this share of a lease counts as not answering. */
const SILENT_SHARE = 2 / 3;

/** Returns the health of an instance; `state` is undefined if it has not started. */
export function healthOf(
  store: string,
  state: EngineState | undefined,
  planning: Pick<Health, 'leader' | 'historyLost' | 'troubles' | 'paused'>,
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

/** True if the store has answered nothing for most of a lease. */
export const isSilent = (
  state: EngineState | undefined,
  { leaseMs }: Pick<MillSettings, 'leaseMs'>,
): boolean => state !== undefined && state.silentMs > leaseMs * SILENT_SHARE;

function complaints(state: EngineState | undefined, { leaseMs, maxAbandoned }: MillSettings): string[] {
  if (state === undefined) return ['not started'];
  const silent = isSilent(state, { leaseMs });
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

/** How many refused outcomes are named: a database that refuses everything would yield thousands. */
const MOST_NAMED = 3;

function refusals(refused: EngineState['refused']): string[] {
  if (refused.length === 0) return [];
  const named = refused.slice(0, MOST_NAMED).map(({ name, id, reason }) => `${name} ${id}: ${reason}`);
  const rest = refused.length > MOST_NAMED ? `; and ${String(refused.length - MOST_NAMED)} more` : '';
  return [`outcomes that the database refuses: ${String(refused.length)} (${named.join('; ')}${rest})`];
}
