import { versionOf } from '../mill/tools.js';
import { admit } from './http/access.js';
import { ResponseCache } from './response-cache.js';
import { api, type ApiParts } from './api.js';
import { Assets } from './http/assets.js';
import { isInternal, notFound, problemOf, Refusal, stopped } from './http/errors.js';
import { Live } from './http/live.js';
import { Operations } from './actions/operations.js';
import { checkDashboard, type DashboardOptions, type DashboardSettings } from './options.js';
import { Redactor } from './redaction/redact.js';
import { checkWhence } from './http/csrf.js';
import { Seal } from './redaction/seal.js';
import { plainPage, refused, respond } from './http/respond.js';

/** The dashboard of a mill: a page and its JSON API, as one handler of web requests. */
export interface Dashboard {
  /** Answers a request; never rejects. It does not use `this`, so it can be passed on by itself. */
  readonly fetch: (request: Request) => Promise<Response>;
  /** How many live streams are open. */
  readonly streams: number;
  /**
   * Ends all live streams, and refuses new ones until the mill starts again. Call it after `server.close()`, which waits
   * for open connections. Streams also end when the mill stops.
   */
  readonly close: () => void;
}

const EVERY_MS = 2_000;
const LASTS_MS = 5 * 60_000;
const BEAT_MS = 15_000;

/** Returns the path below the base, or undefined if the request is for something else. */
function below(basePath: string, request: Request): string | undefined {
  const { pathname } = new URL(request.url);
  if (pathname === basePath) return '';
  return pathname.startsWith(`${basePath}/`) ? pathname.slice(basePath.length + 1) : undefined;
}

class Handler {
  readonly #settings: DashboardSettings;
  readonly #redactor: Redactor;
  readonly #seal: Seal;
  readonly #assets: Assets;
  readonly parts: ApiParts;
  #stopped = false;

  constructor(settings: DashboardSettings) {
    this.#settings = settings;
    const { mill, onError } = settings;
    this.#redactor = new Redactor(settings.redact);
    this.#seal = new Seal(settings.secret);
    this.#assets = new Assets(settings.basePath);
    const cache = new ResponseCache();
    this.parts = {
      cache,
      live: new Live({
        everyMs: EVERY_MS,
        lastsMs: LASTS_MS,
        beatMs: BEAT_MS,
        onError,
        most: settings.maxStreams,
      }),
      operations: new Operations(() => cache.clear()),
      version: versionOf(),
    };
    mill.on('stop', ({ waitUntil }) => waitUntil(this.#stop()));
    mill.on('start', () => this.#start());
  }

  /** A request after the stop would open the store again and keep the process from exiting. */
  #stop(): Promise<void> {
    this.#stopped = true;
    this.parts.live.stop();
    return this.parts.operations.close();
  }

  #start(): void {
    this.#stopped = false;
    this.parts.live.start();
  }

  async answer(request: Request): Promise<Response> {
    const path = below(this.#settings.basePath, request);
    if (path === undefined) return refused(notFound());
    const isApi = path === 'api' || path.startsWith('api/');
    try {
      return await this.#answer(request, path, isApi);
    } catch (error) {
      if (isInternal(error)) this.#settings.onError(error);
      if (isApi) return refused(error);
      const { status, message } = problemOf(error);
      return plainPage(status, status === 401 ? 'No access' : 'Request refused', message);
    }
  }

  async #answer(request: Request, path: string, isApi: boolean): Promise<Response> {
    checkWhence(request, isApi);
    const viewer = await admit(this.#settings, request);
    if (viewer instanceof Response) return viewer;
    if (!isApi) return this.#page(request, path);
    if (this.#stopped) throw stopped();
    const { mill } = this.#settings;
    const { cache } = this.parts;
    const asked = {
      mill,
      settings: this.#settings,
      redactor: this.#redactor,
      seal: this.#seal,
      viewer,
      cache,
    };
    return api(asked, this.parts, request, path.slice('api/'.length));
  }

  #page({ method }: Request, path: string): Response {
    if (method !== 'GET' && method !== 'HEAD')
      throw new Refusal(405, 'bad_request', 'Only GET is allowed here.');
    const answer = this.#assets.answer(path);
    return method === 'GET'
      ? answer
      : respond(answer.status, null, Object.fromEntries(answer.headers.entries()));
  }
}

/** Creates the dashboard of a mill. A caller whom `authorize` grants nothing is denied everything. */
export function createDashboard(options: DashboardOptions): Dashboard {
  const settings = checkDashboard(options);
  const handler = new Handler(settings);
  return {
    fetch: async (request) => {
      try {
        return await handler.answer(request);
      } catch (error) {
        settings.onError(error);
        return refused(error);
      }
    },
    get streams() {
      return handler.parts.live.open;
    },
    close: () => handler.parts.live.stop(),
  };
}
