import { within } from './core/clock.js';
import type { Emitter } from './core/emitter.js';
import { toJob, type JobRecord } from './core/job.js';
import type { Logger } from './core/logger.js';
import { Engine, type EngineState } from './engine/engine.js';
import type { Reservation } from './engine/reservation.js';
import type { MillEvents } from './jobs/events.js';
import type { Registry } from './jobs/registry.js';
import { JobTrigger } from './jobs/trigger.js';
import { Cleaner } from './maintenance/cleaner.js';
import { Reclaimer, type Recovered } from './maintenance/reclaimer.js';
import type { MillSettings } from './mill-options.js';
import type { Cluster, Glance, Store } from './store/port.js';

export interface ShiftOptions {
  readonly settings: MillSettings;
  readonly store: Store;
  readonly registry: Registry;
  readonly events: Emitter<MillEvents>;
  readonly log: Logger;
  /** A job has ended in this process. */
  readonly ended: (id: string, job: () => JobRecord) => void;
  /** An error that no caller sees. */
  readonly fault: (error: unknown, where: string) => void;
}

const STOP_LIMIT_MS = 10_000;

/** One turn of work, made by `start` and ended by `stop`: the engine, and those who look after the cluster. */
export class Shift {
  readonly #options: ShiftOptions;
  readonly #trigger: JobTrigger;
  readonly #engine: Engine;
  readonly #reclaimer: Reclaimer | undefined;
  readonly #cleaner: Cleaner | undefined;
  #reportedForeign = false;

  constructor(options: ShiftOptions) {
    this.#options = options;
    const { settings, store, fault } = options;
    this.#trigger = new JobTrigger({ ...options, ...settings });
    this.#engine = this.#makeEngine();
    this.#reclaimer = settings.recoverStaleJobs ? this.#makeReclaimer() : undefined;
    this.#cleaner =
      store.jobs.sweep === undefined ? undefined : new Cleaner(store, (error) => fault(error, 'clean'));
  }

  get state(): EngineState {
    return this.#engine.state;
  }

  async start(): Promise<void> {
    await this.#engine.start();
    this.#reclaimer?.start();
    this.#cleaner?.start();
  }

  /** Something may be due: new work, or a new name. */
  notify(): void {
    this.#engine.notify();
  }

  /** A slot for a job that is about to be stored; undefined where it has to queue. */
  reserve(name: string, id: string): Reservation | undefined {
    return this.#engine.reserve(name, id);
  }

  async stop(timeoutMs: number): Promise<void> {
    const { handedBack, unrecorded } = await this.#engine.stop(timeoutMs);
    // Bounded: a store that does not answer must not hold up the end.
    if (this.#reclaimer !== undefined)
      await within(this.#options.store.clock, STOP_LIMIT_MS, this.#reclaimer.stop());
    this.#cleaner?.stop();
    const { log } = this.#options;
    if (handedBack.length > 0) {
      const named = handedBack.map(({ name, id }) => `${name} ${id}`).join(', ');
      const jobs = handedBack.map(({ id }) => id);
      log.warn({ jobs }, `stopped before these had ended; they go back to the queue: ${named}`);
    }
    if (unrecorded > 0) {
      const count = String(unrecorded);
      log.error({ count: unrecorded }, `${count} outcomes could not be recorded; those jobs will run again`);
    }
  }

  #makeEngine(): Engine {
    const { settings, store, registry, log, fault } = this.#options;
    return new Engine({
      ...settings,
      store,
      log,
      trigger: this.#trigger,
      policies: () => registry.policies(),
      events: {
        error: fault,
        leaseLost: (reason, works) => this.#leaseLost(reason, works),
        observed: (cluster, glance) => this.#observed(cluster, glance),
        renewed: () => this.#reclaimer?.renewed(),
      },
    });
  }

  #makeReclaimer(): Reclaimer {
    const { settings, store, fault } = this.#options;
    return new Reclaimer({
      store,
      leaseMs: settings.leaseMs,
      self: () => this.#engine.self,
      conclude: (work, finished, policies) => this.#trigger.conclude(work, finished, policies),
      unknown: () => this.#engine.unknown(),
      recovered: (works) => this.#recovered(works),
      error: (error) => fault(error, 'reclaim'),
    });
  }

  #observed(cluster: Cluster, glance?: Glance): void {
    this.#reclaimer?.observe(cluster);
    if (glance?.foreign !== true || this.#reportedForeign) return;
    this.#reportedForeign = true;
    const message =
      'there are pending jobs of a newer schema version; they are left alone until this process is upgraded';
    this.#options.log.warn({}, message);
  }

  #leaseLost(reason: string, works: readonly JobRecord[]): void {
    const { events, log, settings } = this.#options;
    log.warn({ jobs: works.map(({ id }) => id) }, `lease lost: ${reason}`);
    events.emit('lease:lost', { reason, jobs: works.map(toJob), instanceId: settings.instanceId });
  }

  #recovered(works: readonly Recovered[]): void {
    const { events, log, settings } = this.#options;
    const names = [...new Set(works.map(({ work }) => work.name))];
    log.info({ names }, `${String(works.length)} jobs of a dead process were handed on`);
    for (const { work, finished, settlement, retryAt } of works) {
      this.#trigger.recorded(work, finished, { settlement, ...(retryAt === undefined ? {} : { retryAt }) });
    }
    events.emit('stale:recovered', { count: works.length, instanceId: settings.instanceId });
    this.#engine.notify();
  }
}
