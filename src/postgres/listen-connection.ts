import { realTimer, type Timer } from '../core/clock.js';
import type { Listening, ListenHandlers } from '../sql/connection/driver.js';
import { quoted } from '../sql/schema/names.js';
import type { PostgresClient } from './client.js';
import { answered } from './silence.js';

/** A connection that only listens receives nothing on its own, so a regular ping checks that it is alive. */
const PING_MS = 15_000;
const ANSWER_MS = 10_000;

interface Heard {
  readonly channel: string;
  readonly payload?: string;
}

/** One connection that listens on all channels for all subscribers. It is open while there is a subscriber. */
export class ListenConnection {
  readonly #connect: () => Promise<PostgresClient>;
  #client: Promise<ListeningClient> | undefined;

  constructor(connect: () => Promise<PostgresClient>) {
    this.#connect = connect;
  }

  /** Resolves once the channel is listened on. */
  async listen(channel: string, handlers: ListenHandlers): Promise<Listening> {
    const client = await (this.#client ??= this.#open());
    return client.join(channel, handlers);
  }

  #open(): Promise<ListeningClient> {
    const forget = (): void => {
      if (this.#client === opening) this.#client = undefined;
    };
    const opening: Promise<ListeningClient> = this.#connect().then(
      (client) => new ListeningClient(client, forget),
    );
    opening.catch(forget);
    return opening;
  }
}

/** One connection, from its opening until it breaks or the last subscriber leaves. */
class ListeningClient {
  readonly #client: PostgresClient;
  readonly #forget: () => void;
  readonly #handlers = new Map<string, Set<ListenHandlers>>();
  /** Statements run one after another, since a client runs one at a time. */
  #turn: Promise<unknown> = Promise.resolve();
  #ping: Timer;
  #ended: Error | undefined;

  constructor(client: PostgresClient, forget: () => void) {
    this.#client = client;
    this.#forget = forget;
    client.on('notification', this.#onMessage);
    client.on('error', this.#onBroken);
    client.on('end', this.#onBroken);
    this.#ping = this.#nextPing();
  }

  async join(channel: string, handlers: ListenHandlers): Promise<Listening> {
    const all = this.#handlers.get(channel) ?? new Set();
    this.#handlers.set(channel, all.add(handlers));
    try {
      // Also if the channel has other subscribers: it may have been given up a moment ago.
      await this.#say(`listen ${quoted(channel)}`);
    } catch (error) {
      all.delete(handlers);
      this.#onBroken(error);
      throw error;
    }
    return { close: () => this.#leave(channel, handlers) };
  }

  async #leave(channel: string, handlers: ListenHandlers): Promise<void> {
    const all = this.#handlers.get(channel);
    if (all?.delete(handlers) !== true) return;
    if (all.size === 0) this.#handlers.delete(channel);
    if (this.#handlers.size === 0) this.#end(new Error('the listening connection is no longer needed'));
    else if (all.size === 0) await this.#say(`unlisten ${quoted(channel)}`).catch(this.#onBroken);
  }

  #say(statement: string): Promise<unknown> {
    const said = this.#turn.then(() => {
      if (this.#ended !== undefined) throw this.#ended;
      return answered(this.#client.query(statement), ANSWER_MS);
    });
    this.#turn = said.catch(() => undefined);
    return said;
  }

  #nextPing(): Timer {
    const timer = realTimer(PING_MS, () => {
      this.#say('select 1').then(() => {
        if (this.#ended === undefined) this.#ping = this.#nextPing();
      }, this.#onBroken);
    });
    timer.unref?.();
    return timer;
  }

  readonly #onMessage = (heard: unknown): void => {
    const { channel, payload = '' } = heard as Heard;
    for (const { message } of [...(this.#handlers.get(channel) ?? [])]) message(payload);
  };

  readonly #onBroken = (error?: unknown): void => {
    const problem = error instanceof Error ? error : new Error('the listening connection was closed');
    const all = [...this.#handlers.values()].flatMap((some) => [...some]);
    if (this.#ended !== undefined) return;
    this.#end(problem);
    for (const { broken } of all) broken(problem);
  };

  /** Destroys the connection instead of giving it back: one that listens must not be reused. */
  #end(reason: Error): void {
    if (this.#ended !== undefined) return;
    this.#ended = reason;
    this.#ping.cancel();
    this.#handlers.clear();
    this.#forget();
    this.#client.removeListener('notification', this.#onMessage);
    this.#client.release(true);
  }
}
