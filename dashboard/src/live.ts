import { useCallback, useEffect, useState } from 'preact/hooks';
import { address, ApiError, get, refusal } from './api.js';
import { Cell, useCell } from './cell.js';

/** Whether the viewer has paused live updates. It holds for all pages. */
export const paused = new Cell(false);

const RETRY_MIN_MS = 1_000;
const RETRY_MAX_MS = 30_000;

export type Link = 'loading' | 'live' | 'paused' | 'reconnecting';

export interface Live<T> {
  readonly data: T | undefined;
  readonly error: ApiError | undefined;
  readonly link: Link;
  /** The data is still that of the previous path: the old list stays visible until the new one arrives. */
  readonly stale: boolean;
  /** When the data was last known to be current, by this browser's clock. */
  readonly seenAt: number;
  /** Reads once more, now. */
  readonly refresh: () => void;
}

type Picture<T> = Omit<Live<T>, 'refresh' | 'stale'> & { readonly path: string };

/**
 * Shows a response and follows it live. A plain request goes first, because a refused event stream does not tell the
 * reason. A tab in the background follows nothing; it reads again when it becomes visible.
 */
export function useLive<T>(path: string): Live<T> {
  const isPaused = useCell(paused);
  const isVisible = useVisible();
  const [asked, ask] = useState(0);
  const [picture, show] = useState<Picture<T>>(() => nothing<T>(path));

  useEffect(() => {
    if (!isVisible) return undefined;
    const follower = new Follower<T>(path, !isPaused, (change) => {
      show((before) => ({ ...(before.path === path ? before : nothing<T>(path)), ...change }));
    });
    return () => follower.end();
  }, [path, isPaused, isVisible, asked]);

  const refresh = useCallback(() => ask((times) => times + 1), []);
  const stale = picture.path !== path;
  const { data, error, link, seenAt } = picture;
  return stale
    ? { data, error: undefined, link: 'loading', seenAt, stale, refresh }
    : { data, error, link, seenAt, stale, refresh };
}

function nothing<T>(path: string): Picture<T> {
  return { path, data: undefined, error: undefined, link: 'loading', seenAt: Date.now() };
}

class Follower<T> {
  readonly #end = new AbortController();
  readonly #show: (change: Partial<Picture<T>>) => void;
  readonly #path: string;
  readonly #follow: boolean;
  #source: EventSource | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #retryMs = RETRY_MIN_MS;
  /** Why the stream was refused. The data is still read from time to time. */
  #refused: ApiError | undefined;

  constructor(path: string, follow: boolean, show: (change: Partial<Picture<T>>) => void) {
    this.#path = path;
    this.#follow = follow;
    this.#show = (change) => {
      if (!this.#end.signal.aborted) show(change);
    };
    void this.#begin();
  }

  end(): void {
    this.#end.abort();
    this.#source?.close();
    clearTimeout(this.#timer);
  }

  async #begin(): Promise<void> {
    try {
      const data = await get<T>(this.#path, this.#end.signal);
      const link = !this.#follow ? 'paused' : this.#refused === undefined ? 'live' : 'reconnecting';
      this.#show({ data, error: this.#refused, seenAt: Date.now(), link });
      if (this.#follow && !this.#end.signal.aborted) this.#listen();
    } catch (error) {
      if (error instanceof ApiError) this.#fail(error);
    }
  }

  #listen(): void {
    const source = new EventSource(this.#stream);
    this.#source = source;
    source.addEventListener('open', () => {
      this.#refused = undefined;
      this.#show({ link: 'live', seenAt: Date.now(), error: undefined });
    });
    source.addEventListener('message', ({ data }: MessageEvent<string>) => {
      this.#retryMs = RETRY_MIN_MS;
      this.#show({ data: JSON.parse(data) as T, error: undefined, seenAt: Date.now(), link: 'live' });
    });
    source.addEventListener('problem', ({ data }: MessageEvent<string>) => {
      this.#show({ error: refusal(500, JSON.parse(data)) });
    });
    source.addEventListener('error', () => {
      this.#show({ link: 'reconnecting' });
      // The browser reconnects by itself, unless the stream was refused.
      if (source.readyState === EventSource.CLOSED) void this.#explain().finally(() => this.#later());
    });
  }

  get #stream(): string {
    return address(`live?path=${encodeURIComponent(this.#path)}`);
  }

  /** A refused stream does not tell the reason, but a plain request does. */
  async #explain(): Promise<void> {
    const answer = new AbortController();
    const response = await fetch(this.#stream, { redirect: 'manual', signal: answer.signal }).catch(
      () => undefined,
    );
    if (response === undefined || response.ok || response.status === 0) {
      answer.abort();
      return;
    }
    this.#refused = refusal(response.status, await response.json().catch(() => undefined));
    this.#show({ error: this.#refused });
  }

  #fail(error: ApiError): void {
    this.#show({ error, link: this.#follow ? 'reconnecting' : 'paused' });
    if (this.#follow && isPassing(error)) this.#later();
  }

  #later(): void {
    this.#source?.close();
    if (this.#end.signal.aborted) return;
    this.#timer = setTimeout(() => void this.#begin(), this.#retryMs);
    this.#retryMs = Math.min(RETRY_MAX_MS, this.#retryMs * 2);
  }
}

/** Whether a later attempt may succeed. A request that was refused for its content will be refused again. */
function isPassing({ status }: ApiError): boolean {
  return status === 0 || status === 429 || status >= 500;
}

function useVisible(): boolean {
  const [visible, see] = useState(document.visibilityState === 'visible');
  useEffect(() => {
    const look = (): void => see(document.visibilityState === 'visible');
    document.addEventListener('visibilitychange', look);
    return () => document.removeEventListener('visibilitychange', look);
  }, []);
  return visible;
}
