import type { Clock, Timer } from '../../../core/clock.js';
import type { FailureDetector } from '../../../engine/lease/failure-detector.js';
import type { Instance, InstanceStore, Leader, Leases } from '../../../store/port.js';
import type { PlannerStore, Term } from '../../../store/reactive/reactive.js';

export interface ElectionOptions {
  readonly planner: PlannerStore;
  readonly instances: InstanceStore;
  readonly clock: Clock;
  /** Decides when a leader whose lease has ended may be declared dead. */
  readonly detector: Pick<FailureDetector, 'observe' | 'waitMs'>;
  readonly candidate: Candidate;
}

/** The instance that may lead. */
interface Candidate {
  self(): Instance;
  /** True while this instance holds its own lease; only then may it lead. */
  mayLead(): boolean;
  /** Has the cluster read again: a lease should have ended by now. */
  look(): void;
  gained(term: Term): void;
  lost(term: Term, reason: string): void;
  failed(error: unknown): void;
}

/** An ended lease is checked this much later, so that the server agrees that it has ended. */
const SLACK_MS = 50;

/**
 * Elects the leader of one partition. The leader's lease is that of its instance, so leading costs no write of its own. An instance that
 * sees that the leader has resigned or is dead takes the next term; it first fences a leader whose lease has ended. A
 * leader that was only cut off from the database, as all others were, gets time to renew.
 */
export class Election {
  readonly #options: ElectionOptions;
  #term: Term | undefined;
  #running: Promise<void> | undefined;
  #timer: Timer | undefined;
  #closed = false;
  /** A campaign that ends meanwhile gives back what it won. */
  #isLeaving = false;

  constructor(options: ElectionOptions) {
    this.#options = options;
  }

  get term(): Term | undefined {
    return this.#term;
  }

  /**
   * Takes note of the leader at the time of a look, and tries to take over if there is none and this instance has
   * room.
   */
  observe(leases: Leases, leader: Leader | undefined, hasRoom = true): void {
    if (this.#closed) return;
    const term = this.#term;
    if (term !== undefined && leader !== undefined && leader.term > term.term)
      this.lose('another instance leads');
    if (this.#term !== undefined) return;
    this.#timer?.cancel();
    if (!hasRoom) return;
    const { detector, clock, candidate } = this.#options;
    detector.observe(leases);
    const holder = leases.instances.find((one) => one.life === leader?.life && !one.dead);
    // This instance may still be recorded as the leader from before it lost its lease for a while: it then takes the
    // next term.
    const mine = holder !== undefined && holder.life === candidate.self().life;
    const waitMs = holder === undefined || mine ? 0 : detector.waitMs(holder);
    if (holder === undefined || mine) this.#run(leader?.term, undefined);
    else if (waitMs <= 0) this.#run(leader?.term, holder);
    else this.#timer = clock.timer(waitMs + SLACK_MS, () => candidate.look());
  }

  /** Gives up leadership because the instance has lost its lease, or another instance was seen to lead. */
  lose(reason: string): void {
    const term = this.#term;
    this.#term = undefined;
    if (term !== undefined) this.#options.candidate.lost(term, reason);
  }

  /** Hands leadership over at once, and takes no further part in elections. */
  async resign(stopped: () => Promise<void>): Promise<void> {
    this.#closed = true;
    await this.handOver(stopped);
  }

  /** Hands leadership over, once `stopped` says that this instance plans nothing any more. */
  async handOver(stopped: () => Promise<void>): Promise<void> {
    this.#timer?.cancel();
    this.#isLeaving = true;
    try {
      await stopped();
      await this.#running;
      const term = this.#term;
      this.#term = undefined;
      if (term === undefined) return;
      await this.#options.planner.resign(term);
      await this.#options.planner.notifyPeers(true);
    } finally {
      this.#isLeaving = false;
    }
  }

  #run(from: number | undefined, holder: Instance | undefined): void {
    if (this.#running !== undefined || this.#isLeaving || !this.#options.candidate.mayLead()) return;
    this.#running = this.#campaign(from, holder)
      .catch((error: unknown) => this.#options.candidate.failed(error))
      .finally(() => (this.#running = undefined));
  }

  async #campaign(from: number | undefined, holder: Instance | undefined): Promise<void> {
    const { planner, instances, candidate } = this.#options;
    // An instance that was only late may renew at this moment: the fence decides.
    if (holder !== undefined && (await instances.fence(holder)) === undefined) return;
    const term = await planner.lead(candidate.self(), from);
    if (term === undefined) return;
    if (this.#closed || this.#isLeaving || !candidate.mayLead() || candidate.self().life !== term.life)
      await planner.resign(term);
    else {
      this.#term = term;
      candidate.gained(term);
    }
  }
}
