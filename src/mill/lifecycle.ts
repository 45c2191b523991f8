import { systemClock, within } from '../core/clock.js';
import { checkKeys } from '../core/options.js';
import type { DocumentSchedules } from './document-schedules.js';
import type { Results } from '../jobs/results.js';
import type { Locks } from '../locks/locks.js';
import type { Monitor } from '../metrics/monitor.js';
import { rolesOf, type Role, type InstanceRuntime } from './instance-runtime.js';
import { toMs, type Duration } from '../time/duration.js';

export interface LifecycleOptions {
  readonly shutdownMs: number;
  readonly documents: DocumentSchedules;
  readonly locks: Locks;
  readonly results: Results;
  readonly monitor: Monitor;
  /** Makes a turn of work, with the store opened, and starts nothing. */
  readonly shift: (roles: ReadonlySet<Role>) => Promise<InstanceRuntime>;
  /** Lets go of the store. */
  readonly close: () => Promise<void>;
  readonly started: () => void;
  /** Tells listeners; what they still have to do is given to `waitUntil`. */
  readonly stopping: (waitUntil: (work: Promise<unknown>) => void) => void;
}

export interface StartOptions {
  readonly roles?: readonly Role[];
}

export interface StopOptions {
  readonly timeout?: Duration;
}

/**
 * Starting and stopping of a mill. Both may be called at any time and again: a second start joins the first, a start
 * after a stop waits for its end, a stop waits for the start under way.
 */
export class Lifecycle {
  readonly #options: LifecycleOptions;
  #runtime: InstanceRuntime | undefined;
  /** The shift whose start is, or was, under way. */
  #beginning: InstanceRuntime | undefined;
  #starting: Promise<void> | undefined;
  #stopping: Promise<void> | undefined;

  constructor(options: LifecycleOptions) {
    this.#options = options;
  }

  /** The turn of work; undefined while nothing runs. */
  get runtime(): InstanceRuntime | undefined {
    return this.#runtime;
  }

  /** The start that was made, or is under way; undefined where there is none. */
  get starting(): Promise<void> | undefined {
    return this.#starting;
  }

  async start(options: StartOptions): Promise<void> {
    checkKeys('start', options, ['roles']);
    const roles = rolesOf(options.roles);
    // Only where there is a stop to wait for: a stop right after this call must find the start under way.
    if (this.#stopping !== undefined) await this.#stopping;
    this.#starting ??= this.#begin(roles);
    await this.#starting;
  }

  stop(options: StopOptions): Promise<void> {
    this.#stopping ??= this.#end(options).finally(() => (this.#stopping = undefined));
    return this.#stopping;
  }

  async #begin(roles: ReadonlySet<Role>): Promise<void> {
    try {
      const runtime = await this.#options.shift(roles);
      this.#beginning = runtime;
      if (this.#stopping !== undefined) runtime.hurry();
      await runtime.start();
      this.#runtime = runtime;
      this.#options.monitor.start();
      if (roles.has('work')) await this.#options.documents.start();
      this.#options.started();
    } catch (error) {
      this.#starting = undefined;
      this.#beginning = undefined;
      // A schedule of documents that cannot start ends what was begun before it.
      await this.#runtime?.stop(0);
      this.#runtime = undefined;
      throw error;
    }
  }

  async #end(options: StopOptions): Promise<void> {
    checkKeys('stop', options, ['timeout']);
    const { shutdownMs, documents, locks, results, monitor, close, stopping } = this.#options;
    const timeoutMs = options.timeout === undefined ? shutdownMs : toMs('stop', 'timeout', options.timeout);
    const others: Promise<unknown>[] = [];
    stopping((work) => others.push(work));
    this.#beginning?.hurry();
    await this.#starting?.catch(() => undefined);
    this.#beginning = undefined;
    await Promise.all([
      documents.stop(timeoutMs),
      this.#runtime?.stop(timeoutMs),
      locks.stop(timeoutMs),
      others.length === 0 ? undefined : within(systemClock, timeoutMs, Promise.allSettled(others)),
    ]);
    locks.abandon();
    this.#runtime = undefined;
    this.#starting = undefined;
    results.stop();
    // The last words, while the store is open.
    await monitor.stop();
    await close();
  }
}
