/**
 * Typed events. A listener that throws, or whose promise rejects, is reported to `onFault` and harms nobody;
 * an event without listeners is nothing, `error` included.
 */
export class Emitter<Events extends object> {
  /** Not keyed by the events' names: an emitter of many is also one of some. */
  readonly #listeners = new Map<PropertyKey, Set<(event: never) => unknown>>();
  readonly #onFault: (error: unknown, event: keyof Events) => void;

  constructor(onFault: (error: unknown, event: keyof Events) => void) {
    this.#onFault = onFault;
  }

  on<K extends keyof Events>(event: K, listener: (payload: Events[K]) => unknown): void {
    const set = this.#listeners.get(event) ?? new Set();
    this.#listeners.set(event, set.add(listener));
  }

  off<K extends keyof Events>(event: K, listener: (payload: Events[K]) => unknown): void {
    this.#listeners.get(event)?.delete(listener);
  }

  has(event: keyof Events): boolean {
    return (this.#listeners.get(event)?.size ?? 0) > 0;
  }

  emit<K extends keyof Events>(event: K, payload: Events[K]): void {
    const listeners = this.#listeners.get(event);
    if (listeners === undefined) return;
    for (const listener of [...listeners]) {
      try {
        const answer = (listener as (payload: Events[K]) => unknown)(payload);
        if (answer instanceof Promise) answer.catch((error: unknown) => this.#onFault(error, event));
      } catch (error) {
        this.#onFault(error, event);
      }
    }
  }
}
