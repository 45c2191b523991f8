/**
 * Live responses: server-sent events, each with the whole response again, sent when it has changed. Viewers of the
 * same response share one polling loop, which ends with the last of them. A slow viewer gets only the newest
 * response.
 */
import { isInternal, problemOf, Refusal, stopped } from './errors.js';
import { respond } from './respond.js';

export interface LiveOptions {
  /** The pause between the end of one read and the next. */
  readonly everyMs: number;
  /** How long a stream lasts. Browsers then open another one, for which `authorize` is called again. */
  readonly lastsMs: number;
  /** How often a comment line is sent, which keeps proxies from closing a quiet stream. */
  readonly beatMs: number;
  readonly onError: (error: unknown) => void;
  /** The most streams open at a time, in all and per viewer. */
  readonly most: { readonly total: number; readonly perViewer: number };
}

/** The named actor behind a stream. Undefined if `authorize` named none: the limit per viewer does not apply then. */
export type Whose = string | undefined;

const encoder = new TextEncoder();
const BEAT = encoder.encode(':\n\n');

class LiveStream {
  readonly stream: ReadableStream<Uint8Array>;
  readonly whose: Whose;
  #controller: ReadableStreamDefaultController<Uint8Array> | undefined;
  #newest: string | undefined;
  readonly #timers: NodeJS.Timeout[];

  constructor(options: LiveOptions, whose: Whose, left: (follower: LiveStream) => void) {
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
      // The reader has already left.
    }
    this.#controller = undefined;
  }

  #flush(): void {
    const event = this.#newest;
    if (event !== undefined && this.#write(encoder.encode(event))) this.#newest = undefined;
  }

  /** Returns false if the reader has not taken the last event yet, or has left. */
  #write(bytes: Uint8Array): boolean {
    if (this.#controller === undefined || (this.#controller.desiredSize ?? 0) <= 0) return false;
    this.#controller.enqueue(bytes);
    return true;
  }
}

const full = (status: number, what: string): Refusal =>
  new Refusal(status, 'streams', `${what} This page shows the state when it was loaded.`);

class LiveChannel {
  readonly followers = new Set<LiveStream>();
  last: string | undefined;
  timer: NodeJS.Timeout | undefined;
}

export class Live {
  readonly #options: LiveOptions;
  readonly #channels = new Map<string, LiveChannel>();
  #isStopped = false;

  constructor(options: LiveOptions) {
    this.#options = options;
  }

  /** How many streams are open. */
  get open(): number {
    return [...this.#channels.values()].reduce((sum, { followers }) => sum + followers.size, 0);
  }

  /** Throws if there is no room for another stream. */
  check(whose: Whose): void {
    const { total, perViewer } = this.#options.most;
    if (this.open >= total) throw full(503, 'The dashboard has reached its limit of live viewers.');
    const own = [...this.#channels.values()].flatMap(({ followers }) =>
      [...followers].filter((one) => whose !== undefined && one.whose === whose),
    );
    if (own.length >= perViewer) throw full(429, 'You have reached the limit of live pages per viewer.');
  }

  follow(key: string, whose: Whose, make: () => Promise<unknown>): Response {
    if (this.#isStopped) throw stopped();
    this.check(whose);
    const channel = this.#channels.get(key) ?? new LiveChannel();
    const follower = new LiveStream(this.#options, whose, (one) => this.#leave(key, channel, one));
    channel.followers.add(follower);
    if (channel.last !== undefined) follower.send(channel.last);
    if (!this.#channels.has(key)) {
      this.#channels.set(key, channel);
      void this.#look(channel, make);
    }
    return respond(200, follower.stream, {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-store',
      // A connection that idles after its stream would hold up a server that is closing, for seconds.
      connection: 'close',
      // Some proxies buffer responses.
      'x-accel-buffering': 'no',
    });
  }

  /** Ends every stream and refuses new ones until `start`, because a request may be under way. */
  stop(): void {
    this.#isStopped = true;
    for (const channel of this.#channels.values()) {
      clearTimeout(channel.timer);
      for (const follower of channel.followers) follower.end();
      channel.followers.clear();
    }
    this.#channels.clear();
  }

  start(): void {
    this.#isStopped = false;
  }

  async #look(channel: LiveChannel, make: () => Promise<unknown>): Promise<void> {
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

  #leave(key: string, channel: LiveChannel, follower: LiveStream): void {
    follower.end();
    channel.followers.delete(follower);
    if (channel.followers.size > 0) return;
    clearTimeout(channel.timer);
    if (this.#channels.get(key) === channel) this.#channels.delete(key);
  }
}
