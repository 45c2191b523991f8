import type { Clock } from '../core/clock.js';
import type { Logger } from '../core/logger.js';
import type { Meter } from '../core/meter.js';
import type { Tracer } from '../core/tracer.js';
import type { Work } from '../core/records/work.js';
import type { ClusterBrief, DueSummary, WakeUp, WorkKind, WorkStore } from '../store/port.js';
import type { ClaimCounters } from './claim/claim-loop.js';
import type { RefusedOutcome } from './record/refused-outcomes.js';
import type { InstanceContext } from './lease/instance-context.js';
import type { Permits } from './limits/permits.js';
import type { WorkRunner } from './work-runner.js';

export interface EngineOptions<W extends Work, S> {
  readonly kind: WorkKind;
  readonly context: InstanceContext;
  readonly store: WorkStore<W, S>;
  readonly clock: Clock;
  readonly runner: WorkRunner<W, S>;
  readonly concurrency: number;
  readonly leaseMs: number;
  readonly pollMs: { readonly min: number; readonly max: number; readonly maxWithoutWakeUp: number };
  readonly maxAbandoned: number;
  readonly log: Logger;
  readonly meter: Meter;
  /** Undefined if spans are not recorded. */
  readonly tracer: () => Tracer | undefined;
  /** The permits of the instance; absent if the store has no limits. */
  readonly permits?: Permits | undefined;
  readonly host: EngineHost<W>;
}

/** The instance, as an engine sees it. */
export interface EngineHost<W extends Work> {
  /** Reads whether work of a name starts by a claim only: it is paused in the cluster, or has limits. */
  isHeldUp(name: string): Promise<boolean>;
  /** This instance may no longer run or record this work. */
  workLost(reason: string, works: readonly W[]): void;
  /** Takes note of what came with a peek or a claim. */
  clusterSeen(cluster: ClusterBrief, summary?: DueSummary): void;
  error(error: unknown, where: string): void;
}

export interface EngineState {
  readonly running: number;
  readonly buffered: number;
  readonly unsettled: number;
  /** Outcomes that the database refuses. They are kept and retried. */
  readonly refused: readonly RefusedOutcome[];
  /** How long the claim loop, or the recorder of outcomes, has been waiting for a response from the store. */
  readonly stuckMs: number;
  readonly abandoned: number;
  readonly leaseHeld: boolean;
  /** Milliseconds since the store last answered the claim loop or a renewal. */
  readonly silentMs: number;
  readonly wakeUp: WakeUp;
  readonly counters: Readonly<ClaimCounters>;
}
