import type { Tracer } from '../core/tracer.js';

/** Asked for once in a process: whether it is installed does not change. */
let loading: Promise<Tracer | undefined> | undefined;

/** `@opentelemetry/api`, where it is installed; nothing else of the package loads it. */
async function load(): Promise<Tracer | undefined> {
  try {
    const [api, { OtelTracer }] = await Promise.all([import('@opentelemetry/api'), import('./otel.js')]);
    return new OtelTracer(api);
  } catch {
    // Not installed, or not usable: spans are a comfort, and nothing depends on them.
    return undefined;
  }
}

/** The tracer of one mill. */
export class Tracing {
  /** Resolves when it is known whether there is one. */
  readonly ready: Promise<void>;
  #tracer: Tracer | undefined;

  constructor(isWanted: boolean) {
    this.ready = isWanted ? this.#load() : Promise.resolve();
  }

  get tracer(): Tracer | undefined {
    return this.#tracer;
  }

  async #load(): Promise<void> {
    this.#tracer = await (loading ??= load());
  }
}
