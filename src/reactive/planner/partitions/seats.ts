import type { Timer } from '../../../core/clock.js';
import type { PlannerVitals } from '../../../store/metrics.js';
import { combinedVitals } from '../../../store/metrics.js';
import type { Partitioned, Partitioning } from '../../../store/reactive/partitions.js';
import { isAlive, readLeases, type InstanceLease, type Leader, type Leases } from '../../../store/port.js';
import type { ReactiveStore } from '../../../store/reactive/reactive.js';
import { mergeStates, partitionsOf, plannersOf, wantedPartitions } from './division.js';
import { Seat, type SeatOptions } from './seat.js';

export interface SeatsOptions extends Omit<SeatOptions, 'partition' | 'reactive' | 'gained' | 'mayPlan'> {
  readonly reactive: ReactiveStore & Partitioned;
  /** The number of partitions that this instance is set to. */
  readonly partitions: number;
}

/** Without news, leaders of partitions are looked at this often. */
const LOOK_MS = 5_000;
/** While the number of partitions changes, the leader of partition 0 looks this often whether the others resigned. */
const CHANGE_MS = 100;

/**
 * The partitions that this instance leads. Its duties:
 * - keep a seat for each partition in force; with one partition, that is all there is;
 * - spread the others: an instance leads at most the number of partitions divided by that of planning instances,
 *   rounded up. It takes free ones while it leads fewer, and hands over what exceeds that, so that nothing moves back
 *   and forth;
 * - as leader of partition 0, change the number once all planning instances are set to another: announce it, wait until
 *   nothing is planned any more, divide what is on record anew, and let all partitions be led again.
 */
export class Seats {
  readonly #options: SeatsOptions;
  readonly #seats = new Map<number, Seat>();
  #of = 1;
  #next: number | null = null;
  #adjusting: Promise<void> | undefined;
  /** A newer snapshot than the one that is being acted on. */
  #newest: Leases | undefined;
  #adjustedAt = -Infinity;
  /** What the last adjustment was for. */
  #adjustedTo = '';
  /** The disagreement that was last logged. */
  #told = '';
  #timer: Timer | undefined;
  #closed = false;

  constructor(options: SeatsOptions) {
    this.#options = options;
    this.#sit(0);
  }

  /** True while this instance leads partition 0. */
  get leads(): boolean {
    return this.#first.term !== undefined;
  }

  /** The number of partitions in force, as far as this instance knows. */
  get count(): number {
    return this.#of;
  }

  get troubles(): readonly string[] {
    return [...new Set(this.#planners().flatMap(({ troubles }) => troubles))];
  }

  async vitals(): Promise<PlannerVitals | undefined> {
    return combinedVitals(await Promise.all(this.#planners().map((planner) => planner.vitals())));
  }

  nudge(): void {
    for (const planner of this.#planners()) planner.nudge();
  }

  notifyPeers(): void {
    this.#planners()[0]?.notifyPeers();
  }

  /** Acts on a cluster snapshot. `isNews`: something may have changed that the snapshot does not show. */
  observe(leases: Leases, isNews = false): void {
    if (this.#closed || this.#isOld(leases.leader)) return;
    const of = partitionsOf(leases);
    this.#next = leases.leader?.next ?? null;
    if (of === this.#of) this.#first.observe(leases, leases.leader);
    if (this.#options.reactive.partitioning === undefined) return;
    const wanted = wantedPartitions(leases);
    this.#tellDisagreement(of, wanted);
    const isPlain = of === 1 && this.#of === 1 && this.#next === null && (!this.leads || wanted === 1);
    if (isPlain || !(isNews || this.#isDue(leases, wanted))) return;
    this.#newest = leases;
    this.#adjusting ??= this.#adjustWhileNew().finally(() => (this.#adjusting = undefined));
  }

  lose(reason: string): void {
    for (const seat of this.#seats.values()) seat.lose(reason);
  }

  /** Gives up all partitions for good. */
  async resign(): Promise<void> {
    this.#closed = true;
    this.#timer?.cancel();
    await this.#adjusting;
    await Promise.all([...this.#seats.values()].map((seat) => seat.resign()));
  }

  get #first(): Seat {
    return this.#seats.get(0) as Seat;
  }

  #planners(): readonly NonNullable<Seat['planner']>[] {
    return [...this.#seats.values()].flatMap(({ planner }) => planner ?? []);
  }

  /** A snapshot from before this instance led. */
  #isOld(leader: Leader | undefined): boolean {
    const { term } = this.#first;
    return term !== undefined && leader !== undefined && leader.term < term.term;
  }

  #isDue(leases: Leases, wanted: number): boolean {
    const { clock } = this.#options;
    const lives = leases.instances.filter(isAlive).map(({ life }) => life);
    const { term, next } = leases.leader ?? {};
    const to = JSON.stringify([partitionsOf(leases), wanted, term, next, this.leads, lives.sort()]);
    if (to === this.#adjustedTo && clock.monotonic() - this.#adjustedAt < LOOK_MS) return false;
    this.#adjustedTo = to;
    return true;
  }

  #tellDisagreement(of: number, wanted: number): void {
    const { partitions, log } = this.#options;
    const told = partitions === of || wanted !== of ? '' : `${String(partitions)} ${String(of)}`;
    if (told !== '' && told !== this.#told)
      log.warn(
        { partitions, inForce: of },
        `reactive.partitions is ${String(partitions)} here, but ${String(of)} is in force: it changes once all live ` +
          'instances run this version and those that plan are set to the same number',
      );
    this.#told = told;
  }

  #sit(index: number): Seat {
    const { reactive } = this.#options;
    const partition = { index, of: this.#of };
    const seat = new Seat({
      ...this.#options,
      partition,
      reactive:
        this.#of === 1 ? reactive : { ...bound(reactive), ...reactive.partitioning?.within(partition) },
      gained: () => {
        // The leader of partition 0 may have a number to change.
        if (index === 0 && (this.#next !== null || this.#options.partitions !== this.#of))
          this.#options.look();
      },
      mayPlan: () => this.#next === null,
    });
    this.#seats.set(index, seat);
    return seat;
  }

  async #adjustWhileNew(): Promise<void> {
    const { reactive, clock, host } = this.#options;
    while (this.#newest !== undefined && reactive.partitioning !== undefined && !this.#closed) {
      const leases = this.#newest;
      this.#newest = undefined;
      this.#adjustedAt = clock.monotonic();
      try {
        await this.#adjust(leases, reactive.partitioning);
      } catch (problem) {
        host.error(problem, 'lead');
        this.#lookIn(LOOK_MS);
      }
    }
  }

  async #adjust(leases: Leases, partitioning: Partitioning): Promise<void> {
    const of = partitionsOf(leases);
    if (of !== this.#of) await this.#reseat(leases);
    const next = leases.leader?.next ?? null;
    if (next !== null) await this.#standDown();
    const wanted = wantedPartitions(leases);
    if (this.leads && leases.leader !== undefined && (next !== null || wanted !== of))
      await this.#change(leases.leader, wanted, partitioning);
    else if (next !== null) await this.#giveBack(await partitioning.leaders(), partitioning);
    else if (of > 1) await this.#balance(partitioning);
  }

  /** Another number is in force, so every term has ended. */
  async #reseat(leases: Leases): Promise<void> {
    const old = [...this.#seats.values()];
    for (const seat of old) seat.lose('the number of partitions changed');
    // Their last statements must be over before this instance plans the same documents in another partition.
    await Promise.all(old.map((seat) => seat.resign()));
    this.#seats.clear();
    this.#of = partitionsOf(leases);
    this.#sit(0).observe(leases, leases.leader);
  }

  async #standDown(): Promise<void> {
    for (const [index, seat] of this.#seats)
      if (index > 0) await seat.handOver('the number of partitions changes');
  }

  /**
   * Changes the number of partitions, one step with each call. Nothing is planned meanwhile. A leader that dies on the
   * way leaves the announcement behind, and the next one goes on.
   */
  async #change({ next }: Leader, to: number, partitioning: Partitioning): Promise<void> {
    const { reactive, log } = this.#options;
    const { term } = this.#first;
    if (term === undefined) return;
    const from = this.#of;
    if (next !== to) {
      log.info({ from, to }, `reactive tasks: ${String(from)} partitions become ${String(to)}`);
      if (!(await partitioning.announce(term, to))) {
        this.#first.overtaken();
        return;
      }
      await reactive.planner.notifyPeers(true);
    }
    this.#next = to;
    await this.#first.pause();
    await this.#standDown();
    const leaders = await partitioning.leaders();
    const ended = new Map([...leaders].map(([index, leader]) => [index, leader.term]));
    const isOver = await this.#areOver([...leaders.values()]);
    if (!isOver || !(await partitioning.divide(term, { from, to, ended, merge: mergeStates }))) {
      this.#lookIn(CHANGE_MS);
      return;
    }
    this.#first.lose('the number of partitions changed');
    await reactive.planner.notifyPeers(true);
    this.#options.look();
  }

  /** True if none of these leads any more; fences those whose lease has ended. */
  async #areOver(leaders: readonly Leader[]): Promise<boolean> {
    const { instances, detector, self } = this.#options;
    // Read after the leaders, so that it contains each of them that is there.
    const leases = await readLeases(instances);
    detector.observe(leases);
    let over = true;
    for (const leader of leaders) {
      const holder = holderOf(leader, leases);
      if (holder === undefined || holder.life === self().life) continue;
      const mayFence = detector.waitMs(holder) <= 0;
      if (!mayFence || (await instances.fence(holder)) === undefined) over = false;
    }
    return over;
  }

  async #balance(partitioning: Partitioning): Promise<void> {
    const { instances } = this.#options;
    const leaders = await partitioning.leaders();
    // Read after the leaders: a leader that is missing here is gone, and not merely newer than the snapshot.
    const leases = await readLeases(instances);
    if (partitionsOf(leases) !== this.#of || this.#closed) return;
    const share = Math.ceil(this.#of / Math.max(1, plannersOf(leases)));
    const own = [...this.#seats.values()].filter(({ term }) => term !== undefined);
    const surplus = own.filter(({ partition }) => partition.index > 0).sort(highestFirst);
    for (const seat of surplus.slice(0, Math.max(0, own.length - share)))
      await seat.handOver('another instance has room for it');
    let room = share - own.length;
    for (let index = 1; index < this.#of; index += 1) {
      const seat = this.#seats.get(index) ?? this.#sit(index);
      const leader = leaders.get(index);
      seat.observe(leases, leader, seat.term !== undefined || room > 0);
      const holder = leader && holderOf(leader, leases);
      if (seat.term === undefined && (holder === undefined || !isAlive(holder))) room -= 1;
    }
    if (own.length === share) await this.#giveBack(leaders, partitioning);
  }

  /**
   * Resigns from partitions that this instance leads on record only, because the answer to its campaign was lost, or its
   * resignation: it lives, so no other instance would take them.
   */
  async #giveBack(leaders: ReadonlyMap<number, Leader>, partitioning: Partitioning): Promise<void> {
    const { life } = this.#options.self();
    for (const [index, leader] of leaders) {
      const seat = this.#seats.get(index);
      if (leader.life !== life || seat?.term !== undefined) continue;
      await seat?.pause();
      const { planner } = partitioning.within({ index, of: this.#of });
      await planner.resign({ life, term: leader.term });
      await planner.notifyPeers(true);
    }
  }

  #lookIn(ms: number): void {
    this.#timer?.cancel();
    if (!this.#closed) this.#timer = this.#options.clock.timer(ms, this.#options.look);
  }
}

const highestFirst = (a: Seat, b: Seat): number => b.partition.index - a.partition.index;

const holderOf = ({ life }: Leader, { instances }: Leases): InstanceLease | undefined =>
  instances.find((one) => one.life === life && !one.dead);

/** The methods of a store that do not depend on the partition; a store may be a class, whose methods need `this`. */
const bound = (reactive: ReactiveStore): ReactiveStore => ({
  planner: reactive.planner,
  planning: reactive.planning,
  forgetting: reactive.forgetting,
  useGlobals: (collection) => reactive.useGlobals(collection),
  check: (where, plan) => reactive.check(where, plan),
  prepare: (plans) => reactive.prepare(plans),
  tasks: (plans) => reactive.tasks(plans),
});
