/**
 * Typed events. If a listener throws or its promise rejects, `onFault` gets the error, and the emitter and the other
 * listeners continue. An event without listeners is dropped; unlike in Node's EventEmitter, that includes `error`.
 */
export class Emitter<Events extends object> {
  /** Keyed by `PropertyKey`, not `keyof Events`: an emitter of many events is then assignable to an emitter of some. */
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
