import type { Clock } from '../../core/clock.js';
import { ClaimGate } from '../../engine/limits/claim-gate.js';
import type { EndedAs, Permits, Ticket } from '../../engine/limits/permits.js';
import { scopeText, type ScopeRef } from '../../store/port.js';

export interface ScheduleGateOptions {
  readonly name: string;
  readonly permits: Permits;
  readonly clock: Clock;
  /** The life of the instance while it holds its lease; undefined otherwise. */
  readonly life: () => string | undefined;
}

/** One run of the schedule, as its gate sees it. */
export interface GatedRun {
  /** How many documents run or are being recorded. */
  readonly held: number;
  /** Documents may be locked again. */
  wake(): void;
  /** The instance lost its lease, and with it the permits of what runs. */
  leaseLost(reason: string): void;
}

/** Up to how many documents may be locked, and until when. Call `locked` with what was, or `unused`. */
export interface LockGrant {
  readonly max: number;
  readonly notAfter?: Date;
  /** The ids of what was locked, before any of it starts. */
  locked(ids: readonly string[]): void;
  /** Gives back what `locked` was not told of. Repeat: no effect. */
  unused(): void;
  /** False if the lease was lost meanwhile: what was locked must not start. */
  readonly holds: boolean;
}

/** Lets a schedule lock documents as far as its limits grant it. Without limits everything passes. */
export class ScheduleGate {
  readonly #options: ScheduleGateOptions;
  readonly #gate: ClaimGate;
  #run: GatedRun | undefined;
  #isBarred = false;

  constructor(options: ScheduleGateOptions) {
    this.#options = options;
    this.#gate = new ClaimGate({
      ...options,
      kind: 'documents',
      held: () => new Map([[options.name, this.#run?.held ?? 0]]),
      bar: (_name, isBarred) => {
        this.#isBarred = isBarred;
        if (!isBarred) this.#run?.wake();
      },
    });
  }

  /** Called at the start of each run of the schedule; undefined: it has ended. */
  attach(run: GatedRun | undefined): void {
    this.#run = run;
  }

  get isLimited(): boolean {
    return this.#gate.isLimited(this.#options.name);
  }

  /** True while nothing may be locked: a limit refused it, or the lease is lost. The run is woken when that ends. */
  get isClosed(): boolean {
    return this.isLimited && (this.#isBarred || this.#options.life() === undefined);
  }

  /** True unless the schedule has limits, and the instance lost the lease that its permits depend on. */
  get mayRun(): boolean {
    return !this.isLimited || this.#options.life() !== undefined;
  }

  /** To be called before `isLimited` decides whether something may be locked. */
  fresh(): Promise<void> {
    return this.#gate.fresh();
  }

  /** Asks for a schedule that `isLimited`. Undefined: nothing may be locked now. */
  async admit(wanted: number): Promise<LockGrant | undefined> {
    const { name, life } = this.#options;
    const before = life();
    if (before === undefined) return undefined;
    const limits = new Map([[name, { max: wanted, rank: 0, of: 1 }]]);
    const { request, ticket } = await this.#gate.admit({ limits, total: wanted }, new Set([name]));
    if (request === null) return undefined;
    const { max, notAfter } = request.limits.get(name) ?? { max: 0 };
    let isOpen = true;
    const claimed = (ids: readonly string[]): void => {
      if (isOpen) this.#claimed(ids, max, ticket);
      isOpen = false;
    };
    return {
      max,
      ...(notAfter === undefined ? {} : { notAfter }),
      locked: claimed,
      unused: () => claimed([]),
      get holds() {
        return life() === before;
      },
    };
  }

  #claimed(ids: readonly string[], max: number, ticket: Ticket | undefined): void {
    const { name, clock } = this.#options;
    const cluster = { now: new Date(clock.now()), paused: new Set<string>() };
    const jobs = ids.map((id) => ({ name, id }));
    const limits = new Map([[name, { max, rank: 0, of: 1 }]]);
    this.#gate.claimed({ limits, total: max }, { jobs, more: ids.length === max, cluster }, ticket);
  }

  /** A run was recorded, or given up. Not started: its handler was never called. */
  ended(id: string, how: EndedAs, isStarted: boolean): void {
    const work = { name: this.#options.name, id };
    if (this.#gate.concerns(work)) this.#gate.ended(work, how, isStarted);
  }

  /** Permits of these scopes were freed elsewhere, or their limits have changed. */
  freed(scopes: readonly ScopeRef[]): void {
    this.#gate.freed(scopes.map(scopeText));
  }

  /** Limits or the lease have changed. */
  changed(): void {
    this.#gate.changed();
    this.#run?.wake();
  }

  leaseLost(reason: string): void {
    if (this.isLimited) this.#run?.leaseLost(reason);
  }

  stop(): void {
    this.#gate.stop();
  }
}
