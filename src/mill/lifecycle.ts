import { systemClock, within } from '../core/clock.js';
import { checkKeys } from '../core/options.js';
import type { DocumentSchedules } from './document-schedules.js';
import type { Results } from '../jobs/results.js';
import type { Locks } from '../locks/locks.js';
import type { Monitor } from '../metrics/monitor.js';
import type { InstanceRuntime } from './instance-runtime.js';
import { rolesOf, type Role } from './roles.js';
import { toMs, type Duration } from '../time/duration.js';

export interface LifecycleOptions {
  readonly shutdownMs: number;
  readonly documents: DocumentSchedules;
  readonly locks: Locks;
  readonly results: Results;
  readonly monitor: Monitor;
  /** Opens the store and creates the runtime of an instance, without starting it. */
  readonly createRuntime: (roles: ReadonlySet<Role>) => Promise<InstanceRuntime>;
  /** Releases the store. */
  readonly close: () => Promise<void>;
  readonly started: () => void;
  /** Notifies listeners of a stop, which waits for the promises that they pass to `waitUntil`. */
  readonly stopping: (waitUntil: (work: Promise<unknown>) => void) => void;
}

export interface StartOptions {
  /** What this instance does. Default: all roles. */
  readonly roles?: readonly Role[];
}

export interface StopOptions {
  /** How long to wait for running handlers before their signals abort. Default: `shutdownTimeout`. */
  readonly timeout?: Duration;
}

/**
 * Starts and stops a mill. Both can be called at any time, and repeatedly: a second start joins the first, a start
 * waits for a stop in progress, and a stop waits for a start in progress.
 */
export class Lifecycle {
  readonly #options: LifecycleOptions;
  #runtime: InstanceRuntime | undefined;
  /** The runtime whose start is in progress or has finished. */
  #beginning: InstanceRuntime | undefined;
  #starting: Promise<void> | undefined;
  #stopping: Promise<void> | undefined;

  constructor(options: LifecycleOptions) {
    this.#options = options;
  }

  /** The running instance; undefined while stopped. */
  get runtime(): InstanceRuntime | undefined {
    return this.#runtime;
  }

  /** The start that is in progress or has succeeded; undefined while stopped. */
  get starting(): Promise<void> | undefined {
    return this.#starting;
  }

  async start(options: StartOptions): Promise<void> {
    checkKeys('start', options, ['roles']);
    const roles = rolesOf(options.roles);
    // Awaits only if a stop is in progress: a stop right after this call must see `#starting`.
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
      const runtime = await this.#options.createRuntime(roles);
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
      // A document schedule that cannot start stops what was started before it.
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
    // Pushes the last metrics while the store is still open.
    await monitor.stop();
    await close();
  }
}
