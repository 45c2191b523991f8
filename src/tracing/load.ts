import type { Tracer } from '../core/tracer.js';
import type { OtelTracer } from './otel.js';

/** Asked for once in a process: whether it is installed does not change. */
let loading: Promise<OtelTracer | undefined> | undefined;

/** `@opentelemetry/api`, where it is installed; nothing else of the package loads it. */
async function load(): Promise<OtelTracer | undefined> {
  try {
    const [api, otel] = await Promise.all([import('@opentelemetry/api'), import('./otel.js')]);
    return new otel.OtelTracer(api);
  } catch {
    // Not installed, or not usable: spans are a comfort, and nothing depends on them.
    return undefined;
  }
}

/** The tracer of one mill. */
export class Tracing {
  /** Resolves when it is known whether there is one. */
  readonly ready: Promise<void>;
  #tracer: OtelTracer | undefined;

  constructor(isWanted: boolean) {
    this.ready = isWanted ? this.#load() : Promise.resolve();
  }

  /** Undefined where nobody would hear of a span. */
  get tracer(): Tracer | undefined {
    return this.#tracer?.isHeard === true ? this.#tracer : undefined;
  }

  async #load(): Promise<void> {
    this.#tracer = await (loading ??= load());
  }
}
