import { within, type Clock, type Timer } from '../core/clock.js';
import { CancelledError, LeaseLostError, StoppingError, type TidemillError } from '../core/errors.js';
import { wasStarted, type Finished } from '../core/records/outcome.js';
import type { Work } from '../core/records/work.js';
import {
  EVERYTHING,
  leaseOf,
  type ClusterBrief,
  type DueNames,
  type DueSummary,
  type Hint,
  scopeText,
  type ScopeRef,
} from '../store/port.js';
import { Abandoned } from './abandoned.js';
import type { Attempt } from './attempt.js';
import { CancelWatch } from './cancel-watch.js';
import { ClaimLoop, type ClaimHost } from './claim/claim-loop.js';
import { DefinedNames } from './claim/defined-names.js';
import { Lanes } from './claim/lanes.js';
import { LimitedWork } from './limits/limited-work.js';
import { Notebook } from './record/notebook.js';
import type { EngineOptions, EngineState } from './options.js';
import { Reservations, type Reservation, type ReservationHost } from './claim/reservation.js';
import { measured, Runs, type RunsHost } from './runs.js';
import { Outcomes } from './record/outcomes.js';
import { Settler } from './record/settler.js';
import type { LeaseListener, InstanceContext } from './lease/instance-context.js';
import type { Place } from './lease/lease-watch.js';
import type { Settling } from './work-runner.js';
import { unknownWork, type UnknownWork } from './claim/unknown-work.js';
import { Wake } from './claim/wake.js';
import { WakeCalls } from './claim/wake-calls.js';

/** With this many unrecorded outcomes, the engine claims nothing. */
const MOST_UNSETTLED = 2_000;
const HEARTBEATS_PER_LEASE = 3;
/** How long handlers have to react to their signal at the end of a stop. */
const LAST_GRACE_MS = 500;
/** How often buffered work is checked for age. */
const AGE_CHECK_MS = 250;
/** How long a stop waits for the store. */
const SETTLE_LIMIT_MS = 10_000;

/**
 * Runs one kind of work on one instance. Duties: claim work, run it, record its outcome, stop in order. It knows no
 * database, and nothing about what the work is.
 */
export class Engine<W extends Work, S>
  implements LeaseListener, ClaimHost<W>, ReservationHost<W>, RunsHost<W>
{
  readonly #options: EngineOptions<W, S>;
  readonly #clock: Clock;
  readonly #context: InstanceContext;
  readonly #lanes: Lanes<W>;
  readonly #wake: Wake;
  readonly #outcomes: Outcomes<W>;
  readonly #notebook: Notebook;
  readonly #abandoned: Abandoned;
  readonly #loop: ClaimLoop<W>;
  readonly #calls: WakeCalls;
  readonly #limited: LimitedWork<W>;
  readonly #stop = new AbortController();
  readonly #runs: Runs<W, S>;
  readonly #reservations: Reservations<W>;
  readonly #cancels: CancelWatch;
  /** Work whose handler ended early because of the stop, and is handed back. */
  readonly #interrupted: W[] = [];
  readonly #names: DefinedNames<W>;
  #looping: Promise<void> | undefined;
  #ageTimer: Timer | undefined;
  /** Runs while a batch waits for more work. */
  #gathering: Timer | undefined;

  constructor(options: EngineOptions<W, S>) {
    const { kind, context, store, clock, runner, host } = options;
    this.#options = options;
    this.#clock = clock;
    this.#context = context;
    this.#lanes = new Lanes(options.concurrency, context.slots);
    this.#wake = new Wake(clock);
    const error = (where: string) => (problem: unknown) => host.error(problem, where);
    const wake = (hint?: Hint, due?: DueNames): void => {
      this.#dueOf(due?.keys());
      this.#calls.heard(hint, due);
    };
    this.#abandoned = new Abandoned(clock, options.log, options.maxAbandoned, () => wake());
    this.#notebook = new Notebook(clock, async (notes) => store.note?.(notes), error('note'));
    this.#runs = new Runs({
      ...options,
      host: this,
      error,
      notebook: this.#notebook,
      isHeld: () => context.keeper.held,
      isBatched: (name) => this.#lanes.isBatched(name),
      abandoned: (late, handler) => this.#abandoned.add(late, handler),
    });
    const writer = new Settler({
      store,
      runner: {
        conclude: (work, finished, about) => runner.conclude(work, finished, about),
        recorded: (work, finished, conclusion) => {
          this.#limited.recorded(work, finished);
          runner.recorded(work, finished, conclusion);
        },
      },
      lost: ({ work, finished }) => {
        this.#limited.lost(work, wasStarted(finished));
        options.meter.lost(measured(kind), work.name);
        host.workLost('its outcome was refused: another instance holds it now, or it was removed', [work]);
      },
    });
    this.#outcomes = new Outcomes({
      writer,
      clock,
      error: error('settle'),
      drained: () => {
        this.#limited.tell();
        if (this.#names.mayReturn) this.notify();
        if (this.#outcomes.backlog < MOST_UNSETTLED) this.#loop.unbarred();
      },
    });
    this.#cancels = new CancelWatch({
      clock,
      requests: store.cancelRequests?.bind(store),
      leases: () => [
        ...this.#runs.all.map((attempt) => attempt.lease),
        ...this.#lanes.waiting().map(leaseOf),
      ],
      cancel: (asked) => this.#cancel(asked),
      needed: () => this.#runs.attempts.size + this.#lanes.buffered > 0,
      error: error('cancel'),
    });
    this.#limited = new LimitedWork({
      permits: options.permits,
      clock,
      kind: measured(kind),
      held: () => this.#held(),
      bar: (name, isBarred) => {
        this.#lanes.bar(name, isBarred);
        if (!isBarred) this.#wake.notify();
      },
    });
    this.#names = new DefinedNames({
      lanes: this.#lanes,
      workers: () => runner.workers(),
      crowded: () => this.#outcomes.crowded(),
      mayTakeAhead: (name) => this.#limited.gate?.mayTakeAhead(name) ?? true,
      mostOfKey: (name) => this.#limited.gate?.limits(name)?.perKey?.concurrency ?? Infinity,
      release: (works) => this.release(works),
    });
    const subscription = context.listener.join({ kind, wake, cancel: () => void this.#cancels.check() });
    const { keeper } = context;
    const place = (): Place => context.leases.place(kind);
    const claiming = {
      host: this,
      store,
      clock,
      keeper,
      heartbeatMs: options.leaseMs / HEARTBEATS_PER_LEASE,
      error: error('claim'),
    };
    this.#loop = new ClaimLoop({
      ...claiming,
      lanes: this.#lanes,
      wake: this.#wake,
      gate: this.#limited.gate,
      subscription,
      place,
      // Only a peek tells which definitions are in force. Until then the instance runs none of its tasks.
      peeksWithoutNames: kind === 'tasks',
    });
    this.#calls = new WakeCalls({
      lanes: this.#lanes,
      loop: this.#loop,
      notify: () => this.#wake.notify(),
      clock,
      place,
      isDirect: () => context.listener.wakeUp === 'direct',
    });
    const { signal: stop } = this.#stop;
    this.#reservations = new Reservations({ ...claiming, stop, heldUp: (name) => host.isHeldUp(name) });
    context.join(this);
  }

  /** Applies and returns the names that are run here now. Hands back buffered work of other names. */
  defineNames(): readonly string[] {
    return this.#names.apply();
  }

  /** All work from its claim until it is recorded; some of it twice. */
  #held(): readonly W[] {
    const running = this.#runs.all.map(({ work }) => work);
    return [...running, ...this.#lanes.waiting(), ...this.#outcomes.unrecorded()];
  }

  /** Limits have changed: what may be claimed ahead depends on them. */
  limitsChanged(): void {
    this.#names.forget();
    this.#limited.gate?.changed();
    this.#wake.notify();
  }

  /** Work of these names may have become due; of any name if they are absent. */
  #dueOf(names?: Iterable<string>): void {
    const { gate } = this.#limited;
    gate?.called(names);
    // Claims leave out limited names of which nothing is known to be due.
    if (names === undefined && gate?.isInUse === true) this.#loop.peekFirst();
  }

  freed(scopes: readonly ScopeRef[]): void {
    this.#limited.gate?.freed(scopes.map(scopeText));
  }

  get mayClaim(): boolean {
    return this.#context.keeper.held && !this.#abandoned.tooMany && this.#outcomes.backlog < MOST_UNSETTLED;
  }

  /** Without wake-ups, polls must find everything; if no wake-up is ever lost, nothing is polled. */
  get pollMs(): { readonly min: number; readonly max: number } {
    const { min, max, maxWithoutWakeUp } = this.#options.pollMs;
    const { wakeUp } = this.#context.listener;
    return { min, max: wakeUp === 'direct' ? Infinity : wakeUp === 'poll' ? maxWithoutWakeUp : max };
  }

  observe(cluster: ClusterBrief, summary?: DueSummary): void {
    if (cluster.paused.has(EVERYTHING)) this.release(this.#lanes.drain());
    else for (const name of cluster.paused) this.release(this.#lanes.drain(name));
    this.#options.host.clusterSeen(cluster, summary);
  }

  suspect(): void {
    this.#loop.suspectAt = this.#clock.monotonic();
  }

  get state(): EngineState {
    const lastContact = Math.max(this.#loop.lastContactAt, this.#context.lastRenewalAt);
    const { refused } = this.#outcomes;
    return {
      running: this.#lanes.running,
      buffered: this.#lanes.buffered,
      unsettled: this.#outcomes.backlog + refused.length,
      refused,
      stuckMs: Math.max(this.#loop.stepMs, this.#outcomes.writingMs),
      abandoned: this.#abandoned.count,
      leaseHeld: this.#context.keeper.held,
      silentMs: this.#clock.monotonic() - lastContact,
      wakeUp: this.#context.listener.wakeUp,
      counters: this.#loop.counters,
    };
  }

  /** Work of this life that the engine does not know of; undefined if no response was lost. */
  unknown(): UnknownWork | undefined {
    const known = (): string[] => [...this.#reservations.ids(), ...this.#held().map(({ id }) => id)];
    const now = this.#clock.monotonic();
    return unknownWork(this.#loop, known, { now, leaseMs: this.#options.leaseMs });
  }

  /** Begins to claim. The instance context must have been started. */
  start(): void {
    this.defineNames();
    this.#looping = this.#loop.run(this.#stop.signal);
  }

  /** Wakes the claim loop: there may be new work, or a new handler. With names, only if some of them are run here. */
  notify(stored?: Iterable<string>): void {
    this.defineNames();
    this.#dueOf(stored);
    if (stored === undefined) this.#wake.notify();
    else this.#calls.stored(stored);
  }

  /**
   * Reserves a slot for work that is about to be stored, so that it need not be claimed. Undefined if the work has to
   * queue: no slot is free, other work is due, or nothing may be claimed.
   */
  reserve(name: string, id: string): Reservation<W> | undefined {
    if (this.#stop.signal.aborted || !this.mayClaim || !this.#loop.quiet(name)) return undefined;
    // A start of a limited name takes a claim, which the scopes grant.
    if (this.#limited.gate?.isLimited(name) === true) return undefined;
    if (!this.#lanes.reserve(name)) return undefined;
    return this.#reservations.open(name, id);
  }

  giveSlotBack(name: string): void {
    this.#lanes.free(name);
    this.slotFreed();
    this.#context.freed(this);
  }

  /**
   * Stops claiming, hands back buffered work, and gives running handlers `timeoutMs` to end; the lease is kept
   * meanwhile. Then aborts their signals, and hands back what still runs without using an attempt. Returns the running
   * work that was handed back, and how many outcomes could not be recorded.
   */
  async stop(timeoutMs: number): Promise<{ readonly handedBack: readonly W[]; readonly unrecorded: number }> {
    this.#stop.abort();
    this.release(this.#lanes.drain());
    // A store that does not answer must not delay the stop. Other instances reclaim what a late claim takes.
    const looped = this.#looping && within(this.#clock, SETTLE_LIMIT_MS, this.#looping);
    const reserved = within(this.#clock, SETTLE_LIMIT_MS, this.#reservations.ended());
    await Promise.all([looped, reserved, this.#runs.idle(timeoutMs)]);
    const stopping = new StoppingError('The instance is stopping and no longer waits for its handlers.');
    for (const attempt of this.#runs.all) attempt.abort(stopping);
    this.#runs.abortBatches(stopping);
    if (this.#runs.isBusy) await this.#runs.idle(LAST_GRACE_MS);
    const stuck = this.#runs.all.map((attempt) => attempt.work);
    const now = this.#clock.now();
    for (const attempt of this.#runs.all)
      this.#outcomes.push(interrupted(attempt, now), attempt.inTransaction);
    this.#runs.attempts.clear();
    const unrecorded = await this.#outcomes.drain(SETTLE_LIMIT_MS);
    this.#calls.stop();
    this.#limited.gate?.stop();
    this.#cancels.stop();
    this.#abandoned.stop();
    this.#ageTimer?.cancel();
    this.#gathering?.cancel();
    await within(this.#clock, SETTLE_LIMIT_MS, this.#notebook.stop());
    return { handedBack: [...this.#interrupted, ...stuck], unrecorded };
  }

  startWaiting(): void {
    // After a pause longer than the lease, other instances may have taken the buffered work over.
    if (!this.#context.keeper.held) return;
    const now = this.#clock.monotonic();
    for (let works = this.#lanes.next(now); works !== undefined; works = this.#lanes.next(now))
      this.launch(works);
    this.#gather(this.#lanes.gatheringMs(now));
    if (this.#ageTimer === undefined && this.#lanes.buffered > 0)
      this.#ageTimer = this.#clock.timer(AGE_CHECK_MS, () => this.#handBackAged());
  }

  /** Starts batches that wait for more work: a test does not wait for them. */
  startBatches(): void {
    for (let works = this.#lanes.next(Infinity); works !== undefined; works = this.#lanes.next(Infinity))
      this.launch(works);
  }

  /** Starts a batch that is not full when it has waited long enough. Its work can be cancelled meanwhile. */
  #gather(waitMs: number | undefined): void {
    this.#gathering?.cancel();
    this.#gathering = undefined;
    if (waitMs === undefined || this.#stop.signal.aborted) return;
    this.#cancels.start();
    this.#gathering = this.#clock.timer(waitMs, () => this.startWaiting());
  }

  /** Hands back buffered work that has waited too long, without using an attempt: other instances may have a slot. */
  #handBackAged(): void {
    this.#ageTimer = undefined;
    if (this.#stop.signal.aborted) return;
    this.release(this.#lanes.aged(this.#clock.monotonic()));
    this.startWaiting();
  }

  /** A handler is about to start. */
  began(): void {
    this.#cancels.start();
  }

  /** Runs work that has a slot: one piece, or a batch. */
  launch(works: readonly W[]): void {
    this.#runs.launch(works);
  }

  /** An attempt has its outcome: passes it on to be recorded. */
  async finish(attempt: Attempt<W>, finished: Finished): Promise<void> {
    if (this.#stop.signal.aborted && finished.outcome.kind === 'released')
      this.#interrupted.push(attempt.work);
    const extra = await this.#notebook.take(attempt.lease);
    const settling = { work: attempt.work, finished, ...(extra === undefined ? {} : { extra }) };
    const { runner } = this.#options;
    // Already recorded inside the handler's transaction: there is nothing left to write.
    if (finished.outcome.kind === 'recorded') {
      this.#limited.recorded(attempt.work, finished);
      runner.recorded(attempt.work, finished, runner.conclude(attempt.work, finished));
    } else this.#outcomes.push(settling, attempt.inTransaction);
  }

  lost(work: W): void {
    this.#limited.lost(work, false);
  }

  /** This instance has handed on work of a dead process. */
  handedOn(work: W, finished: Finished): void {
    this.#limited.handedOn(work, finished);
  }

  /** Its outcome was recorded in its own transaction, or it is lost: then no batch of outcomes follows. */
  over(work: W): void {
    this.#limited.tell((other) => other === work);
  }

  /** A slot is free after a run. */
  ended(name: string, durationMs: number): void {
    const worthAClaim = this.#lanes.done(name, durationMs);
    if (!this.#stop.signal.aborted) {
      this.startWaiting();
      // No other slot can become free soon if nothing else runs.
      if (worthAClaim) this.#loop.slotsFreed(this.#runs.attempts.size > 0 ? durationMs : 0);
    }
    this.#context.freed(this);
  }

  release(works: readonly W[]): void {
    const finished: Finished = { outcome: { kind: 'released' }, finishedAt: this.#clock.now() };
    for (const work of works) this.#outcomes.push({ work, finished });
  }

  slotFreed(): void {
    if (this.#stop.signal.aborted) return;
    this.startWaiting();
    this.#loop.slotsFreed();
  }

  leaseLost(reason: string): void {
    const attempts = this.#runs.all;
    const waiting = this.#lanes.drain();
    const error: TidemillError = new LeaseLostError(`The lease of this instance was lost: ${reason}.`);
    for (const attempt of attempts) attempt.abort(error);
    // If no other instance took over, this hands the buffer back; otherwise the store refuses the write.
    this.release(waiting);
    this.#options.host.workLost(reason, [...attempts.map((attempt) => attempt.work), ...waiting]);
  }

  leaseRegained(): void {
    this.#dueOf();
    this.#wake.notify();
  }

  leaseRenewed(): void {
    const { store } = this.#options;
    if (!this.#stop.signal.aborted) this.startWaiting();
    if (this.#runs.attempts.size === 0 || store.heartbeat === undefined) return;
    const except = this.#runs.all.filter((attempt) => attempt.inTransaction).map((attempt) => attempt.lease);
    const heartbeat = store.heartbeat(this.#context.self, except).catch(() => undefined);
    this.#clock.track?.(heartbeat);
  }

  #cancel(asked: ReadonlySet<string>): void {
    const finished: Finished = { outcome: { kind: 'cancelled' }, finishedAt: this.#clock.now() };
    for (const work of this.#lanes.waiting())
      if (asked.has(work.id) && this.#lanes.take(work)) this.#outcomes.push({ work, finished });
    for (const attempt of this.#runs.all) {
      const { id, name } = attempt.work;
      if (asked.has(id)) attempt.abort(new CancelledError(`${name} ${id} was cancelled.`));
    }
  }
}

/** Work whose handler does not heed the stop goes back. It has started, if its handler was called. */
function interrupted<W extends Work>(attempt: Attempt<W>, now: number): Settling<W> {
  const { work, startedAt, hasBegun } = attempt;
  return {
    work,
    finished: { outcome: { kind: 'released' }, finishedAt: now, ...(hasBegun ? { startedAt } : {}) },
  };
}
