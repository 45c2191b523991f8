import { pause, type Clock } from '../core/clock.js';
import type { Poisoned, TaskPlan } from '../store/reactive.js';

export interface AsideOptions {
  readonly clock: Clock;
  readonly stop: AbortSignal;
  /** Tries them again; what is still held is added again. */
  readonly retry: (task: string, ids: readonly unknown[]) => Promise<void>;
  /** Nothing is left. */
  readonly emptied: () => Promise<void>;
  readonly error: (error: unknown) => void;
}

const EVERY_MS = 1_000;

/**
 * Documents whose tasks a user's open transaction holds. They are tried again by themselves, all of them once a second,
 * so that nobody else has to wait. The resume point does: a successor must meet their changes again.
 */
export class Aside {
  readonly #options: AsideOptions;
  #ids = new Map<string, unknown[]>();
  #catchingUp: Promise<void> | undefined;

  constructor(options: AsideOptions) {
    this.#options = options;
  }

  get isEmpty(): boolean {
    return this.#catchingUp === undefined;
  }

  add({ task }: TaskPlan, choked: readonly Poisoned[]): void {
    const ids = choked.filter(({ blocked }) => blocked).map(({ id }) => id);
    if (ids.length === 0) return;
    this.#ids.set(task, [...(this.#ids.get(task) ?? []), ...ids]);
    this.#catchingUp ??= this.#catchUp();
  }

  /** Until nothing is left, or it was stopped. True where nothing is left. */
  async emptied(): Promise<boolean> {
    await this.#catchingUp;
    return this.#ids.size === 0;
  }

  /** What is added while the resume point is being kept is caught up with as well: nobody else would. */
  async #catchUp(): Promise<void> {
    const { clock, stop, emptied, error } = this.#options;
    while (this.#ids.size > 0 && (await pause(clock, EVERY_MS, stop))) {
      await this.#round();
      if (this.#ids.size === 0) await emptied().catch(error);
    }
    this.#catchingUp = undefined;
  }

  async #round(): Promise<void> {
    const { retry, error } = this.#options;
    const round = this.#ids;
    this.#ids = new Map();
    for (const [task, ids] of round) {
      try {
        await retry(task, ids);
      } catch (problem) {
        error(problem);
        this.#ids.set(task, [...(this.#ids.get(task) ?? []), ...ids]);
      }
    }
  }
}
