import type { Clock, Timer } from '../core/clock.js';
import type { Logger } from '../core/logger.js';
import type { Attempt } from './attempt.js';

const REMIND_MS = 60_000;

/**
 * Handlers that still run past their timeout. Logs their names every minute. At the limit the engine stops claiming,
 * before they exhaust the memory of the process.
 */
export class Abandoned {
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #limit: number;
  readonly #fewer: () => void;
  readonly #attempts = new Set<Attempt>();
  #timer: Timer | undefined;

  constructor(clock: Clock, log: Logger, limit: number, fewer: () => void) {
    this.#clock = clock;
    this.#log = log;
    this.#limit = limit;
    this.#fewer = fewer;
  }

  get count(): number {
    return this.#attempts.size;
  }

  get tooMany(): boolean {
    return this.#attempts.size >= this.#limit;
  }

  add(attempt: Attempt, handler: Promise<unknown>): void {
    this.#attempts.add(attempt);
    if (this.#attempts.size === 1) this.#remind();
    void handler.then(() => {
      this.#attempts.delete(attempt);
      if (this.#attempts.size === 0) this.stop();
      this.#fewer();
    });
  }

  stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #remind(): void {
    const handlers = [...this.#attempts].map(({ work, startedAt }) => ({
      name: work.name,
      id: work.id,
      startedAt: new Date(startedAt),
    }));
    const named = handlers.map(({ name, id }) => `${name} ${id}`).join(', ');
    const tail = this.tooMany ? '; this instance claims no more work until some of them end' : '';
    this.#log.warn(
      { handlers },
      `handlers that ignore their signal and run past their timeout: ${named}${tail}`,
    );
    this.#timer = this.#clock.timer(REMIND_MS, () => this.#remind());
  }
}
