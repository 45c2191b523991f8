import { pause, within, type Clock, type Timer } from '../core/clock.js';
import { CancelledError, LeaseLostError, StoppingError, type TidemillError } from '../core/errors.js';
import type { Finished } from '../core/records/outcome.js';
import type { Work } from '../core/records/work.js';
import { leaseOf, type Cluster, type DueSummary, type Hint, type WorkKind } from '../store/port.js';
import { Abandoned } from './abandoned.js';
import { Attempt, runAttempt } from './attempt.js';
import { CancelWatch } from './cancel-watch.js';
import { ClaimLoop, type ClaimHost } from './claim/claim-loop.js';
import { tracedEnd } from './record/ending.js';
import { Lanes } from './claim/lanes.js';
import { Notebook } from './record/notebook.js';
import type { EngineOptions, EngineState } from './options.js';
import { Reservations, type Reservation, type ReservationHost } from './claim/reservation.js';
import { BatchRecorder } from './record/batch-recorder.js';
import { Settler } from './record/settler.js';
import type { LeaseListener, InstanceContext } from './lease/instance-context.js';
import { Wake } from './claim/wake.js';
import type { Settling } from './work-runner.js';

/** With this many unrecorded outcomes, the engine claims nothing. */
const MOST_UNSETTLED = 2_000;
/** With this many refused outcomes, a name is not run here until the database takes some of them. */
const MOST_REFUSED = 100;
const HEARTBEATS_PER_LEASE = 3;
/** How long handlers have to react to their signal at the end of a stop. */
const LAST_GRACE_MS = 500;
/** How often buffered work is checked for age. */
const AGE_CHECK_MS = 250;
/** For how many leases, after a lost response, the instance searches for work that it holds without knowing. */
const SUSPECT_LEASES = 4;
/** How long a stop waits for the store. */
const SETTLE_LIMIT_MS = 10_000;

const measured = (kind: WorkKind): 'job' | 'task' => (kind === 'jobs' ? 'job' : 'task');

/**
 * Runs one kind of work on one instance. Duties: claim work, run it, record its outcome, stop in order. It knows no
 * database, and nothing about what the work is.
 */
export class Engine<W extends Work, S> implements LeaseListener, ClaimHost<W>, ReservationHost<W> {
  readonly #options: EngineOptions<W, S>;
  readonly #clock: Clock;
  readonly #context: InstanceContext;
  readonly #lanes: Lanes<W>;
  readonly #wake: Wake;
  readonly #recorder: BatchRecorder<Settling<W>>;
  /** For work that a user's open transaction may have locked: its write may wait, and must not delay others. */
  readonly #apart: BatchRecorder<Settling<W>>;
  readonly #notebook: Notebook;
  readonly #abandoned: Abandoned;
  readonly #loop: ClaimLoop<W>;
  readonly #stop = new AbortController();
  /** Work whose handler runs, by id. */
  readonly #attempts = new Map<string, Attempt<W>>();
  readonly #reservations: Reservations<W>;
  readonly #cancels: CancelWatch;
  /** Work whose handler ended early because of the stop, and is handed back. */
  readonly #interrupted: W[] = [];
  /** How many names are not run now because the database refuses their outcomes. */
  #heldBack = 0;
  #looping: Promise<void> | undefined;
  #idleWaiters: (() => void)[] = [];
  #ageTimer: Timer | undefined;

  constructor(options: EngineOptions<W, S>) {
    const { kind, context, store, clock, runner, events } = options;
    this.#options = options;
    this.#clock = clock;
    this.#context = context;
    this.#lanes = new Lanes(options.concurrency, context.slots);
    this.#wake = new Wake(clock);
    const error = (where: string) => (problem: unknown) => events.error(problem, where);
    const wake = (hint?: Hint): void => {
      if (hint !== undefined) this.#loop.hint(hint);
      this.#wake.notify();
    };
    this.#abandoned = new Abandoned(clock, options.log, options.maxAbandoned, () => wake());
    this.#notebook = new Notebook(clock, async (notes) => store.note?.(notes), error('note'));
    const writer = new Settler({
      store,
      runner,
      lost: (work) => {
        options.meter.lost(measured(kind), work.name);
        events.leaseLost('its outcome was refused: another instance holds it now, or it was removed', [work]);
      },
    });
    const recording = {
      writer,
      clock,
      error: error('settle'),
      drained: () => {
        if (this.#crowded().size < this.#heldBack) this.notify();
        if (this.#unsettled < MOST_UNSETTLED) this.#loop.slotsFreed();
      },
    };
    this.#recorder = new BatchRecorder(recording);
    this.#apart = new BatchRecorder(recording);
    this.#cancels = new CancelWatch({
      clock,
      requests: store.cancelRequests?.bind(store),
      leases: () => [
        ...[...this.#attempts.values()].map((attempt) => attempt.lease),
        ...this.#lanes.waiting().map(leaseOf),
      ],
      cancel: (asked) => this.#cancel(asked),
      needed: () => this.#attempts.size > 0,
      error: error('cancel'),
    });
    const subscription = context.listener.join({ kind, wake, cancel: () => void this.#cancels.check() });
    const { keeper } = context;
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
      subscription,
      // Only a peek tells which definitions are in force. Until then the instance runs none of its tasks.
      peeksWithoutNames: kind === 'tasks',
    });
    this.#reservations = new Reservations({ ...claiming, stop: this.#stop.signal, paused: options.paused });
    context.join(this);
  }

  /** Applies and returns the names that are run here now. Hands back buffered work of other names. */
  defineNames(): readonly string[] {
    const crowded = this.#crowded();
    const workers = new Map([...this.#options.runner.workers()].filter(([name]) => !crowded.has(name)));
    this.#heldBack = crowded.size;
    this.#lanes.define(workers);
    this.release(this.#lanes.drainUndefined());
    return [...workers.keys()];
  }

  /** Names of which the database refuses many outcomes. They must neither stop other names nor fill the memory. */
  #crowded(): ReadonlySet<string> {
    const counts = new Map<string, number>();
    for (const { name } of this.#refused) counts.set(name, (counts.get(name) ?? 0) + 1);
    return new Set([...counts.keys()].filter((name) => (counts.get(name) ?? 0) >= MOST_REFUSED));
  }

  get #refused(): EngineState['refused'] {
    return [...this.#recorder.refused, ...this.#apart.refused];
  }

  get mayClaim(): boolean {
    return this.#context.keeper.held && !this.#abandoned.tooMany && this.#unsettled < MOST_UNSETTLED;
  }

  /** Without wake-ups, polls must find everything; if no wake-up is ever lost, nothing is polled. */
  get pollMs(): { readonly min: number; readonly max: number } {
    const { min, max, maxWithoutWakeUp } = this.#options.pollMs;
    const { wakeUp } = this.#context.listener;
    return { min, max: wakeUp === 'direct' ? Infinity : wakeUp === 'poll' ? maxWithoutWakeUp : max };
  }

  observe(cluster: Cluster, summary?: DueSummary): void {
    for (const name of cluster.paused) this.release(this.#lanes.drain(name));
    this.#options.events.observed(cluster, summary);
  }

  suspect(): void {
    this.#loop.suspectAt = this.#clock.monotonic();
  }

  get state(): EngineState {
    const lastContact = Math.max(this.#loop.lastContactAt, this.#context.lastRenewalAt);
    return {
      running: this.#lanes.running,
      buffered: this.#lanes.buffered,
      unsettled: this.#unsettled + this.#refused.length,
      refused: this.#refused,
      stuckMs: Math.max(this.#loop.stepMs, this.#recorder.writingMs),
      abandoned: this.#abandoned.count,
      leaseHeld: this.#context.keeper.held,
      silentMs: this.#clock.monotonic() - lastContact,
      wakeUp: this.#context.listener.wakeUp,
      counters: this.#loop.counters,
    };
  }

  /**
   * Recognises work held under this life that the engine does not know of. Undefined if no response was lost. The
   * suspicion ends only after a search that came late enough: a claim may land late, and searches may fail meanwhile.
   */
  unknown(): { readonly has: (work: Work) => boolean; readonly lookedFor: () => void } | undefined {
    const { suspectAt, claiming } = this.#loop;
    if (suspectAt === -Infinity) return undefined;
    const isLast = this.#clock.monotonic() - suspectAt > SUSPECT_LEASES * this.#options.leaseMs;
    const known = new Set([
      ...this.#attempts.keys(),
      ...this.#reservations.ids(),
      ...this.#lanes.waiting().map((work) => work.id),
      ...this.#recorder.unrecorded().map(({ work }) => work.id),
      ...this.#apart.unrecorded().map(({ work }) => work.id),
    ]);
    return {
      // The claim loop itself finds out what the claim in progress has taken, and runs it.
      has: (work) => !known.has(work.id) && work.leaseToken !== claiming,
      lookedFor: () => {
        if (isLast && this.#loop.suspectAt === suspectAt) this.#loop.suspectAt = -Infinity;
      },
    };
  }

  /** Begins to claim. The instance context must have been started. */
  start(): void {
    this.defineNames();
    this.#looping = this.#loop.run(this.#stop.signal);
  }

  /** Wakes the claim loop: there may be new work, or a new handler. */
  notify(): void {
    this.defineNames();
    this.#wake.notify();
  }

  /**
   * Reserves a slot for work that is about to be stored, so that it need not be claimed. Undefined if the work has to
   * queue: no slot is free, other work is due, or nothing may be claimed.
   */
  reserve(name: string, id: string): Reservation<W> | undefined {
    if (this.#stop.signal.aborted || !this.mayClaim || !this.#loop.quiet(name)) return undefined;
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
    await Promise.all([looped, reserved, this.#idle(timeoutMs)]);
    const late = [...this.#attempts.values()];
    for (const attempt of late)
      attempt.abort(new StoppingError('The instance is stopping and no longer waits for its handlers.'));
    if (late.length > 0) await this.#idle(LAST_GRACE_MS);
    const stuck = [...this.#attempts.values()].map((attempt) => attempt.work);
    for (const attempt of this.#attempts.values()) {
      this.release([attempt.work], attempt.inTransaction ? this.#apart : this.#recorder);
    }
    this.#attempts.clear();
    const drained = await Promise.all(
      [this.#recorder, this.#apart].map((recorder) => recorder.drain(SETTLE_LIMIT_MS)),
    );
    const unrecorded = drained.reduce((sum, count) => sum + count, 0);
    this.#cancels.stop();
    this.#abandoned.stop();
    this.#ageTimer?.cancel();
    await within(this.#clock, SETTLE_LIMIT_MS, this.#notebook.stop());
    return { handedBack: [...this.#interrupted, ...stuck], unrecorded };
  }

  /** Resolves when no handler runs, or after `limitMs`. */
  async #idle(limitMs: number): Promise<void> {
    if (this.#attempts.size === 0) return;
    const done = new AbortController();
    this.#idleWaiters.push(() => done.abort());
    await pause(this.#clock, limitMs, done.signal);
  }

  startWaiting(): void {
    // After a pause longer than the lease, other instances may have taken the buffered work over.
    if (!this.#context.keeper.held) return;
    for (let work = this.#lanes.next(); work !== undefined; work = this.#lanes.next()) this.launch(work);
    if (this.#ageTimer === undefined && this.#lanes.buffered > 0)
      this.#ageTimer = this.#clock.timer(AGE_CHECK_MS, () => this.#handBackAged());
  }

  /** Hands back buffered work that has waited too long, without using an attempt: other instances may have a slot. */
  #handBackAged(): void {
    this.#ageTimer = undefined;
    if (this.#stop.signal.aborted) return;
    this.release(this.#lanes.aged(this.#clock.monotonic()));
    this.startWaiting();
  }

  launch(work: W): void {
    const running = this.#run(work);
    this.#clock.track?.(running);
  }

  async #run(work: W): Promise<void> {
    const { store, events } = this.#options;
    const attempt = new Attempt<W>(work, this.#clock.now(), (self) => ({
      isHeld: () => this.#context.keeper.held,
      note: (note) => {
        if (this.#attempts.get(work.id) === self)
          this.#notebook.add(self.lease, note, () => self.inTransaction);
      },
      unwritten: () => this.#notebook.unwritten(self.lease),
    }));
    const began = this.#clock.monotonic();
    attempt.inTransaction = this.#options.runner.mayComplete(work);
    this.#attempts.set(work.id, attempt);
    this.#cancels.start();
    try {
      if (this.#isMarked(work) && (await store.begin(attempt.lease)) === 'lost') return;
      const finished = await this.#attempt(attempt);
      if (this.#attempts.get(work.id) === attempt) await this.#finish(attempt, finished);
    } catch (error) {
      // Only the store can have failed here. Hand the work back without using an attempt.
      events.error(error, 'begin');
      this.release([work]);
    } finally {
      this.#ended(attempt, this.#clock.monotonic() - began);
    }
  }

  /** Whether to mark the start of the attempt, so that a reclaimer can tell whether it began (see docs/adr/0008). */
  #isMarked(work: W): boolean {
    const { runner } = this.#options;
    return work.failKind === 'crashed' || runner.attempt(work) >= runner.maxAttempts(work);
  }

  #attempt(attempt: Attempt<W>): Promise<Finished> {
    const { runner, kind, tracer } = this.#options;
    const run = (): Promise<Finished> =>
      runAttempt(attempt, {
        clock: this.#clock,
        runner,
        abandoned: (late, handler) => this.#abandoned.add(late, handler),
      });
    const spans = tracer();
    if (spans === undefined) return run();
    const { id, name, trace } = attempt.work;
    const about = { kind: measured(kind), id, name, attempt: runner.attempt(attempt.work) };
    return spans.run(trace === undefined ? about : { ...about, trace }, run, ({ outcome }) =>
      tracedEnd(outcome),
    );
  }

  async #finish(attempt: Attempt<W>, finished: Finished): Promise<void> {
    if (this.#stop.signal.aborted && finished.outcome.kind === 'released')
      this.#interrupted.push(attempt.work);
    const extra = await this.#notebook.take(attempt.lease);
    const settling = { work: attempt.work, finished, ...(extra === undefined ? {} : { extra }) };
    const { runner } = this.#options;
    // Already recorded inside the handler's transaction: there is nothing left to write.
    if (finished.outcome.kind === 'recorded') {
      runner.recorded(attempt.work, finished, runner.conclude(attempt.work, finished));
    } else (attempt.inTransaction ? this.#apart : this.#recorder).push(settling);
  }

  /** Without the outcomes that the database refuses: those only hold back their own names. */
  get #unsettled(): number {
    return this.#recorder.backlog + this.#apart.backlog;
  }

  #ended(attempt: Attempt<W>, durationMs: number): void {
    if (this.#attempts.get(attempt.work.id) === attempt) this.#attempts.delete(attempt.work.id);
    const worthAClaim = this.#lanes.done(attempt.work.name, durationMs);
    if (!this.#stop.signal.aborted) {
      this.startWaiting();
      if (worthAClaim) this.#loop.slotsFreed();
    }
    this.#context.freed(this);
    if (this.#attempts.size > 0) return;
    for (const waiter of this.#idleWaiters.splice(0)) waiter();
  }

  release(works: readonly W[], recorder: BatchRecorder<Settling<W>> = this.#recorder): void {
    const finished: Finished = { outcome: { kind: 'released' }, finishedAt: this.#clock.now() };
    for (const work of works) recorder.push({ work, finished });
  }

  slotFreed(): void {
    if (this.#stop.signal.aborted) return;
    this.startWaiting();
    this.#loop.slotsFreed();
  }

  leaseLost(reason: string): void {
    const attempts = [...this.#attempts.values()];
    const waiting = this.#lanes.drain();
    const error: TidemillError = new LeaseLostError(`The lease of this instance was lost: ${reason}.`);
    for (const attempt of attempts) attempt.abort(error);
    // If no other instance took over, this hands the buffer back; otherwise the store refuses the write.
    this.release(waiting);
    this.#options.events.leaseLost(reason, [...attempts.map((attempt) => attempt.work), ...waiting]);
  }

  leaseRegained(): void {
    this.#wake.notify();
  }

  leaseRenewed(): void {
    const { store } = this.#options;
    if (!this.#stop.signal.aborted) this.startWaiting();
    if (this.#attempts.size === 0 || store.heartbeat === undefined) return;
    const except = [...this.#attempts.values()]
      .filter((attempt) => attempt.inTransaction)
      .map((attempt) => attempt.lease);
    const heartbeat = store.heartbeat(this.#context.self, except).catch(() => undefined);
    this.#clock.track?.(heartbeat);
  }

  #cancel(asked: ReadonlySet<string>): void {
    const finished: Finished = { outcome: { kind: 'cancelled' }, finishedAt: this.#clock.now() };
    for (const work of this.#lanes.waiting())
      if (asked.has(work.id) && this.#lanes.take(work)) this.#recorder.push({ work, finished });
    for (const attempt of this.#attempts.values()) {
      const { id, name } = attempt.work;
      if (asked.has(id)) attempt.abort(new CancelledError(`${name} ${id} was cancelled.`));
    }
  }
}
