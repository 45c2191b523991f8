import type { Clock, Timer } from '../../core/clock.js';
import type { Logger } from '../../core/logger.js';
import { show, suggestion } from '../../core/options.js';
import { isAlive, type Store } from '../../store/port.js';
import type { Registry } from '../registry.js';

type Deed = 'enqueued' | 'paused';

/** How long after the first call with a name the check runs: a worker that starts with its producer is then live. */
const LOOK_AFTER_MS = 5_000;
/** Names beyond this many are not checked: they are made from data. */
const MOST_NAMES = 1_000;

/**
 * Warns of job names that neither this process nor a live instance knows: they are probably misspelt. Checks each name
 * once, in the background and many at a time, so that no call waits for it.
 */
export class UnknownNames {
  readonly #registry: Registry;
  readonly #log: Logger;
  readonly #seen = new Set<string>();
  #waiting = new Map<string, Deed>();
  #timer: Timer | undefined;

  constructor(registry: Registry, log: Logger) {
    this.#registry = registry;
    this.#log = log;
  }

  /** Called for each name that is enqueued or paused. */
  note(name: string, store: Store, deed: Deed = 'enqueued'): void {
    if (this.#seen.has(name) || this.#registry.options(name) !== undefined) return;
    if (this.#seen.size >= MOST_NAMES) return;
    this.#seen.add(name);
    this.#waiting.set(name, deed);
    this.#arm(store, store.clock);
  }

  stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    // They are checked again if they are enqueued after a new start.
    for (const name of this.#waiting.keys()) this.#seen.delete(name);
    this.#waiting.clear();
  }

  #arm(store: Store, clock: Clock): void {
    if (this.#timer !== undefined) return;
    this.#timer = clock.timer(LOOK_AFTER_MS, () => {
      this.#timer = undefined;
      const looking = this.#look(store).catch(() => undefined);
      clock.track?.(looking);
    });
    this.#timer.unref?.();
  }

  async #look(store: Store): Promise<void> {
    const names = this.#waiting;
    this.#waiting = new Map();
    const { instances } = await store.instances.list();
    const live = instances.filter(isAlive);
    const run = new Set(live.flatMap((instance) => instance.names));
    const known = [...new Set([...run, ...this.#registry.names])];
    for (const [name, deed] of names) {
      if (known.includes(name)) continue;
      const [what, then] = TEXTS[deed];
      this.#log.warn(
        { name },
        `${what(show(name))}, but no live instance runs it, and it is not defined here.${suggestion(name, known)}${then}`,
      );
    }
  }
}

/** What was done with a name, and what follows if nothing knows it. */
const TEXTS: Readonly<Record<Deed, readonly [what: (name: string) => string, then: string]>> = {
  enqueued: [(name) => `jobs of the name ${name} are enqueued`, ' They wait until a worker for it starts.'],
  paused: [(name) => `the name ${name} is paused`, ''],
};
