import type { Clock } from '../core/clock.js';
import type { Logger } from '../core/logger.js';
import type { Meter } from '../core/meter.js';
import type { Tracer } from '../core/tracer.js';
import type { Work } from '../core/records/work.js';
import type { Cluster, DueSummary, WakeUp, WorkKind, WorkStore } from '../store/port.js';
import type { ClaimCounters } from './claim/claim-loop.js';
import type { RefusedOutcome } from './record/refused-outcomes.js';
import type { InstanceContext } from './lease/instance-context.js';
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
  readonly paused: (name: string) => Promise<boolean>;
  readonly events: EngineEvents<W>;
}

interface EngineEvents<W extends Work> {
  readonly error: (error: unknown, where: string) => void;
  readonly leaseLost: (reason: string, works: readonly W[]) => void;
  /** Reports the state of the cluster that came with a peek or a claim. */
  readonly observed: (cluster: Cluster, summary?: DueSummary) => void;
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
