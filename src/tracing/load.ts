import type { Tracer } from '../core/tracer.js';
import type { OtelTracer } from './otel.js';

/** Loaded once per process: whether the package is installed does not change. */
let loading: Promise<OtelTracer | undefined> | undefined;

/** Loads `@opentelemetry/api` if it is installed. Nothing else in the package loads it. */
async function load(): Promise<OtelTracer | undefined> {
  try {
    const [api, otel] = await Promise.all([import('@opentelemetry/api'), import('./otel.js')]);
    return new otel.OtelTracer(api);
  } catch {
    // Not installed or not usable. Spans are optional.
    return undefined;
  }
}

/** The tracer of one mill. */
export class Tracing {
  /** Resolves once OpenTelemetry has been loaded or found to be missing. */
  readonly ready: Promise<void>;
  #tracer: OtelTracer | undefined;

  constructor(isWanted: boolean) {
    this.ready = isWanted ? this.#load() : Promise.resolve();
  }

  /** Undefined if tracing is off, not installed, or the application has registered no SDK. */
  get tracer(): Tracer | undefined {
    return this.#tracer?.isHeard === true ? this.#tracer : undefined;
  }

  async #load(): Promise<void> {
    this.#tracer = await (loading ??= load());
  }
}
