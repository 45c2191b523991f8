import { systemClock, within } from '../core/clock.js';
import { checkKeys } from '../core/options.js';
import type { DocumentSchedules } from './document-schedules.js';
import type { Results } from '../jobs/results.js';
import type { WatchRegistry } from '../jobs/watch/watches.js';
import type { UnknownNames } from '../jobs/enqueue/unknown-names.js';
import type { Locks } from '../locks/locks.js';
import type { Monitor } from '../metrics/monitor.js';
import type { InstanceRuntime, InstanceRuntimeOptions } from './instance-runtime.js';
import { loadHolding } from '../locks/parts.js';
import { loadRuntime } from './parts.js';
import { rolesOf, type Role } from './roles.js';
import type { Store } from '../store/port.js';
import type { StoreHandle } from './opening/store-handle.js';
import { toMs, type Duration } from '../time/duration.js';

export interface LifecycleOptions {
  readonly store: Pick<StoreHandle<Store>, 'open' | 'release'>;
  /** What each runtime is made from. */
  readonly runtime: Omit<InstanceRuntimeOptions, 'roles' | 'store'>;
  readonly documents: DocumentSchedules;
  readonly locks: Locks;
  readonly results: Pick<Results, 'ended' | 'stop'>;
  readonly watches: WatchRegistry;
  readonly monitor: Monitor;
  readonly unknownNames: UnknownNames | undefined;
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

  /** Opens the store and creates the runtime of an instance, without starting it. */
  async #createRuntime(roles: ReadonlySet<Role>): Promise<InstanceRuntime> {
    const { runtime, store } = this.#options;
    const { InstanceRuntime } = await loadRuntime();
    const opened = await store.open();
    // Handlers have limits of time, which the loader of modules must not use up.
    await Promise.all([opened.loadParts?.(), loadHolding()]);
    return new InstanceRuntime({ ...runtime, roles, store: opened });
  }

  async #begin(roles: ReadonlySet<Role>): Promise<void> {
    try {
      const runtime = await this.#createRuntime(roles);
      this.#beginning = runtime;
      if (this.#stopping !== undefined) runtime.hurry();
      await runtime.start();
      this.#runtime = runtime;
      this.#options.monitor.start();
      if (roles.has('work')) await this.#options.documents.start();
      const { settings, events } = this.#options.runtime;
      events.emit('start', { instanceId: settings.instanceId });
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
    const { runtime, documents, locks, results, watches, monitor, unknownNames, store } = this.#options;
    const { shutdownMs, instanceId } = runtime.settings;
    const timeoutMs = options.timeout === undefined ? shutdownMs : toMs('stop', 'timeout', options.timeout);
    const others: Promise<unknown>[] = [];
    const waitUntil = (work: Promise<unknown>): void => void others.push(work);
    runtime.events.emit('stop', { instanceId, waitUntil });
    this.#beginning?.hurry();
    await this.#starting?.catch(() => undefined);
    this.#beginning = undefined;
    const schedules = documents.stop(timeoutMs);
    await Promise.all([
      schedules,
      this.#runtime?.stop(timeoutMs, schedules),
      locks.stop(timeoutMs),
      others.length === 0 ? undefined : within(systemClock, timeoutMs, Promise.allSettled(others)),
    ]);
    locks.abandon();
    this.#runtime = undefined;
    this.#starting = undefined;
    results.stop();
    await watches.stop();
    // Pushes the last metrics while the store is still open.
    await monitor.stop();
    unknownNames?.stop();
    await store.release();
  }
}
