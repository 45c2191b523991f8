/**
 * Answers that are followed: server-sent events, each the whole answer again, sent when it has changed. Viewers of the
 * same answer share one loop, which ends with the last of them. A viewer that is slow gets the newest answer only.
 */
import { isInternal, problemOf, Refusal, stopped } from './errors.js';
import { respond } from './respond.js';

export interface LiveOptions {
  /** How long to wait after one look before the next. */
  readonly everyMs: number;
  /** After so long a stream ends. Browsers open another one, and are asked again who they are. */
  readonly lastsMs: number;
  /** A line that means nothing keeps proxies from ending a quiet stream. */
  readonly beatMs: number;
  readonly onError: (error: unknown) => void;
  /** How many may be open, in all and for one viewer. */
  readonly most: { readonly total: number; readonly perViewer: number };
}

/** Whose stream it is; undefined: nobody said, so that viewers cannot be told apart. */
export type Whose = string | undefined;

const encoder = new TextEncoder();
const BEAT = encoder.encode(':\n\n');

class Follower {
  readonly stream: ReadableStream<Uint8Array>;
  readonly whose: Whose;
  #controller: ReadableStreamDefaultController<Uint8Array> | undefined;
  #newest: string | undefined;
  readonly #timers: NodeJS.Timeout[];

  constructor(options: LiveOptions, whose: Whose, left: (follower: Follower) => void) {
    this.whose = whose;
    this.stream = new ReadableStream<Uint8Array>({
      start: (controller) => {
        this.#controller = controller;
      },
      pull: () => this.#flush(),
      cancel: () => left(this),
    });
    this.#timers = [
      setInterval(() => this.#write(BEAT), options.beatMs).unref(),
      setTimeout(() => left(this), options.lastsMs).unref(),
    ];
  }

  send(event: string): void {
    this.#newest = event;
    this.#flush();
  }

  end(): void {
    for (const timer of this.#timers) clearTimeout(timer);
    try {
      this.#controller?.close();
    } catch {
      // Its reader has left already.
    }
    this.#controller = undefined;
  }

  #flush(): void {
    const event = this.#newest;
    if (event !== undefined && this.#write(encoder.encode(event))) this.#newest = undefined;
  }

  /** False where the reader has not taken the last one yet. */
  #write(bytes: Uint8Array): boolean {
    if (this.#controller === undefined || (this.#controller.desiredSize ?? 0) <= 0) return false;
    this.#controller.enqueue(bytes);
    return true;
  }
}

const full = (status: number, what: string): Refusal =>
  new Refusal(status, 'streams', `${what} This page shows what was true when it was loaded.`);

class Channel {
  readonly followers = new Set<Follower>();
  last: string | undefined;
  timer: NodeJS.Timeout | undefined;
}

export class Live {
  readonly #options: LiveOptions;
  readonly #channels = new Map<string, Channel>();
  #isStopped = false;

  constructor(options: LiveOptions) {
    this.#options = options;
  }

  /** How many streams are open. */
  get open(): number {
    return [...this.#channels.values()].reduce((sum, { followers }) => sum + followers.size, 0);
  }

  /** Refuses a stream for which there is no room. */
  check(whose: Whose): void {
    const { total, perViewer } = this.#options.most;
    if (this.open >= total) throw full(503, 'The dashboard has as many live viewers as it takes.');
    const own = [...this.#channels.values()].flatMap(({ followers }) =>
      [...followers].filter((one) => whose !== undefined && one.whose === whose),
    );
    if (own.length >= perViewer) throw full(429, 'You have as many live pages open as one viewer may.');
  }

  follow(key: string, whose: Whose, make: () => Promise<unknown>): Response {
    if (this.#isStopped) throw stopped();
    this.check(whose);
    const channel = this.#channels.get(key) ?? new Channel();
    const follower = new Follower(this.#options, whose, (one) => this.#leave(key, channel, one));
    channel.followers.add(follower);
    if (channel.last !== undefined) follower.send(channel.last);
    if (!this.#channels.has(key)) {
      this.#channels.set(key, channel);
      void this.#look(channel, make);
    }
    return respond(200, follower.stream, {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-store',
      // Some proxies gather answers before they pass them on.
      'x-accel-buffering': 'no',
    });
  }

  /** Ends every stream, and begins none until `start`: a request may be under way. */
  stop(): void {
    this.#isStopped = true;
    this.close();
  }

  start(): void {
    this.#isStopped = false;
  }

  /** Ends every stream. */
  close(): void {
    for (const channel of this.#channels.values()) {
      clearTimeout(channel.timer);
      for (const follower of channel.followers) follower.end();
      channel.followers.clear();
    }
    this.#channels.clear();
  }

  async #look(channel: Channel, make: () => Promise<unknown>): Promise<void> {
    const event = await make().then(
      (answer) => `data: ${JSON.stringify(answer)}\n\n`,
      (error: unknown) => this.#problem(error),
    );
    if (channel.followers.size === 0) return;
    if (event !== channel.last) for (const follower of channel.followers) follower.send(event);
    channel.last = event;
    channel.timer = setTimeout(() => void this.#look(channel, make), this.#options.everyMs).unref();
  }

  #problem(error: unknown): string {
    if (isInternal(error)) this.#options.onError(error);
    const { code, message } = problemOf(error);
    return `event: problem\ndata: ${JSON.stringify({ error: { code, message } })}\n\n`;
  }

  #leave(key: string, channel: Channel, follower: Follower): void {
    follower.end();
    channel.followers.delete(follower);
    if (channel.followers.size > 0) return;
    clearTimeout(channel.timer);
    if (this.#channels.get(key) === channel) this.#channels.delete(key);
  }
}
