import { EventEmitter } from 'node:events';
import type { Listening, ListenHandlers } from '../sql/connection/driver.js';
import type { PostgresPool } from './client.js';

/**
 * Errors of connections that are idle in the user's pool, as when the server restarts. The pool replaces such a
 * connection itself, but without a listener the error would end the process. Listens only if nothing else does.
 */
export class ConnectionErrors {
  readonly #pool: EventEmitter | undefined;
  readonly #hearing = new Set<(error: unknown) => void>();
  readonly #onError = (error: unknown): void => {
    for (const heard of [...this.#hearing]) heard(error);
  };

  constructor(pool: PostgresPool) {
    this.#pool = pool instanceof EventEmitter && pool.listenerCount('error') === 0 ? pool : undefined;
    this.#pool?.on('error', this.#onError);
  }

  close(): void {
    this.#pool?.removeListener('error', this.#onError);
  }

  /** Passes the errors on to the handlers of a channel, from its opening until it is closed or broken. */
  async beside(
    { idle, ...handlers }: ListenHandlers,
    listen: (handlers: ListenHandlers) => Promise<Listening>,
  ): Promise<Listening> {
    if (idle === undefined) return listen(handlers);
    // A function of its own for each channel: two of them may have the same handler.
    const heard = (error: unknown): void => idle(error);
    const end = (): void => void this.#hearing.delete(heard);
    this.#hearing.add(heard);
    const broken = (error: unknown): void => {
      end();
      handlers.broken(error);
    };
    try {
      const listening = await listen({ ...handlers, broken });
      return {
        close: () => {
          end();
          return listening.close();
        },
      };
    } catch (error) {
      end();
      throw error;
    }
  }
}
