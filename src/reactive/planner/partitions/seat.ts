import type { Clock } from '../../../core/clock.js';
import type { Emitter } from '../../../core/emitter.js';
import type { Logger } from '../../../core/logger.js';
import type { FailureDetector } from '../../../engine/lease/failure-detector.js';
import type { Partition } from '../../../store/reactive/partitions.js';
import type { Instance, InstanceStore, Leader, Leases } from '../../../store/port.js';
import type { ReactiveStore, Term } from '../../../store/reactive/reactive.js';
import type { TaskEvents } from '../../events.js';
import { Election } from './election.js';
import { Planner, type PlannerHost, type PlannerOptions } from '../planner.js';

/** The instance, as the leader of a partition sees it. */
export type SeatHost = Omit<PlannerHost, 'overtaken'>;

export interface SeatOptions extends Omit<PlannerOptions, 'host' | 'term' | 'reactive'> {
  readonly host: SeatHost;
  readonly partition: Partition;
  /** The store of the partition. */
  readonly reactive: ReactiveStore;
  readonly instances: InstanceStore;
  readonly clock: Clock;
  readonly self: () => Instance;
  readonly detector: Pick<FailureDetector, 'observe' | 'waitMs'>;
  readonly mayLead: () => boolean;
  /** False while the number of partitions changes: the leader of partition 0 then plans nothing. */
  readonly mayPlan: () => boolean;
  readonly look: () => void;
  /** Called when this instance has begun to lead. */
  readonly gained: () => void;
  readonly events: Emitter<TaskEvents>;
  readonly log: Logger;
}

/** One partition on this instance: its election and, while this instance leads it, its planner. */
export class Seat implements PlannerHost {
  readonly #options: SeatOptions;
  readonly #election: Election;
  #planner: Planner | undefined;
  #ending: Promise<void> = Promise.resolve();

  constructor(options: SeatOptions) {
    this.#options = options;
    const { reactive, host, instances, clock, detector, self, mayLead, look } = options;
    this.#election = new Election({
      planner: reactive.planner,
      instances,
      clock,
      detector,
      candidate: {
        self,
        mayLead,
        look,
        gained: (term) => this.#gained(term),
        lost: (term, reason) => this.#lost(term, reason),
        failed: (error) => host.error(error, 'lead'),
      },
    });
  }

  get partition(): Partition {
    return this.#options.partition;
  }

  get term(): Term | undefined {
    return this.#election.term;
  }

  get planner(): Planner | undefined {
    return this.#planner;
  }

  get leaseLeftMs(): number {
    return this.#options.host.leaseLeftMs;
  }

  get isAlone(): boolean {
    return this.#options.host.isAlone;
  }

  planned(): void {
    this.#options.host.planned();
  }

  error(problem: unknown, where: string): void {
    this.#options.host.error(problem, where);
  }

  overtaken(): void {
    this.lose('another instance leads');
  }

  observe(leases: Leases, leader: Leader | undefined, hasRoom?: boolean): void {
    this.#election.observe(leases, leader, hasRoom);
  }

  lose(reason: string): void {
    this.#election.lose(reason);
  }

  /** Stops planning, and stays the leader. Resolves when the statement in progress has ended. */
  async pause(): Promise<void> {
    this.#stopPlanner();
    await this.#ending;
  }

  /** Stops planning, then lets another instance lead. */
  async handOver(reason: string): Promise<void> {
    const { term } = this;
    await this.#election.handOver(() => this.pause());
    if (term !== undefined) this.#told(term, reason);
  }

  /** Gives up the partition for good. */
  async resign(): Promise<void> {
    await this.#election.resign(() => this.pause());
  }

  #gained(term: Term): void {
    const { host, gained, mayPlan, events, instanceId, log, partition } = this.#options;
    const part = partOf(partition);
    log.info({ term: term.term, ...part.fields }, `this instance now plans reactive tasks${part.text}`);
    events.emit('leader:gained', { term: term.term, instanceId, partition: partition.index });
    gained();
    if (!mayPlan()) return;
    const planner = new Planner({ ...this.#options, host: this, term });
    this.#planner = planner;
    this.#ending
      .then(() => {
        if (this.#planner === planner) planner.start();
      })
      .catch((problem: unknown) => host.error(problem, 'plan'));
  }

  #lost(term: Term, reason: string): void {
    this.#stopPlanner();
    this.#told(term, reason);
  }

  #told(term: Term, reason: string): void {
    const { events, instanceId, log, partition } = this.#options;
    const part = partOf(partition);
    const text = `this instance no longer plans reactive tasks${part.text}: ${reason}`;
    log.warn({ term: term.term, ...part.fields }, text);
    events.emit('leader:lost', { term: term.term, reason, instanceId, partition: partition.index });
  }

  #stopPlanner(): void {
    const planner = this.#planner;
    this.#planner = undefined;
    if (planner === undefined) return;
    const { host } = this.#options;
    this.#ending = this.#ending
      .then(() => planner.stop())
      .catch((problem: unknown) => host.error(problem, 'plan'));
  }
}

const partOf = ({ index, of }: Partition): { readonly fields: object; readonly text: string } =>
  of === 1
    ? { fields: {}, text: '' }
    : { fields: { partition: index, of }, text: ` of partition ${String(index)} of ${String(of)}` };
