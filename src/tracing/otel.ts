import type * as Otel from '@opentelemetry/api';
import type { TraceContext, TracedEnd, TracedRun, Tracer } from '../core/tracer.js';

type Api = typeof Otel;

const TRACEPARENT = /^00-(?<traceId>[0-9a-f]{32})-(?<spanId>[0-9a-f]{16})-(?<flags>[0-9a-f]{2})$/u;

/** The context of a span, for storage; undefined if no SDK records spans. */
function keptOf(api: Api, span: Otel.Span): TraceContext | undefined {
  const context = span.spanContext();
  if (!api.isSpanContextValid(context)) return undefined;
  const flags = context.traceFlags.toString(16).padStart(2, '0');
  const tracestate = context.traceState?.serialize() ?? '';
  return {
    traceparent: `00-${context.traceId}-${context.spanId}-${flags}`,
    ...(tracestate === '' ? {} : { tracestate }),
  };
}

/** Parses a stored context; undefined if it is invalid. */
function spanContextOf(api: Api, kept: TraceContext): Otel.SpanContext | undefined {
  const { traceId, spanId, flags } = TRACEPARENT.exec(kept.traceparent)?.groups ?? {};
  if (traceId === undefined || spanId === undefined || flags === undefined) return undefined;
  const context = {
    traceId,
    spanId,
    traceFlags: Number.parseInt(flags, 16),
    isRemote: true,
    ...(kept.tracestate === undefined ? {} : { traceState: api.createTraceState(kept.tracestate) }),
  };
  return api.isSpanContextValid(context) ? context : undefined;
}

/** Names and attributes follow OpenTelemetry's semantic conventions for messaging where these have a term. */
const messaging = (operation: 'enqueue' | 'run', type: 'send' | 'process'): Otel.Attributes => ({
  'messaging.system': 'tidemill',
  'messaging.operation.name': operation,
  'messaging.operation.type': type,
});

/** The only way to find out whether an SDK is registered. */
// eslint-disable-next-line @typescript-eslint/no-deprecated -- it is there in every 1.x, which is what the peer range allows
const proxyOf = (api: Api): Api['ProxyTracerProvider'] => api.ProxyTracerProvider;

/** Creates spans with OpenTelemetry. */
export class OtelTracer implements Tracer {
  readonly #api: Api;
  readonly #tracer: Otel.Tracer;
  /** The delegate of a proxy provider when no SDK is registered. */
  readonly #nobody: Otel.TracerProvider;

  constructor(api: Api) {
    this.#api = api;
    this.#tracer = api.trace.getTracer('tidemill');
    this.#nobody = new (proxyOf(api))().getDelegate();
  }

  /** Whether the application has registered an SDK. Without one, spans would cost a short job a fifth of its time. */
  get isHeard(): boolean {
    const provider = this.#api.trace.getTracerProvider();
    return !(provider instanceof proxyOf(this.#api)) || provider.getDelegate() !== this.#nobody;
  }

  enqueue<T>(names: readonly string[], work: (trace: TraceContext | undefined) => Promise<T>): Promise<T> {
    const [name = '', ...others] = new Set(names);
    const isMany = names.length > 1;
    const attributes = {
      ...messaging('enqueue', 'send'),
      ...(others.length > 0 ? {} : { 'messaging.destination.name': name }),
      ...(isMany ? { 'messaging.batch.message_count': names.length } : {}),
    };
    const kind = this.#api.SpanKind.PRODUCER;
    const title = others.length > 0 ? 'enqueue' : `enqueue ${name}`;
    return this.#tracer.startActiveSpan(title, { kind, attributes }, (span) => {
      const kept = keptOf(this.#api, span);
      return this.#during(span, () => work(kept === undefined || !isMany ? kept : { ...kept, batch: true }));
    });
  }

  run<T>(about: TracedRun, work: () => Promise<T>, endOf: (answer: T) => TracedEnd): Promise<T> {
    const { kind, name, id, attempt, trace } = about;
    const { ROOT_CONTEXT, SpanKind, trace: traces, context } = this.#api;
    const before = trace === undefined ? undefined : spanContextOf(this.#api, trace);
    // Work enqueued or planned in a batch is not a child of that span; it links to it.
    const isChild = before !== undefined && trace?.batch !== true && kind === 'job';
    const parent = isChild ? traces.setSpanContext(ROOT_CONTEXT, before) : ROOT_CONTEXT;
    const attributes = {
      ...messaging('run', 'process'),
      'messaging.destination.name': name,
      'messaging.message.id': id,
      'tidemill.kind': kind,
      'tidemill.attempt': attempt,
    };
    const links = before === undefined || isChild ? [] : [{ context: before }];
    const span = this.#tracer.startSpan(
      `run ${name}`,
      { kind: SpanKind.CONSUMER, attributes, links },
      parent,
    );
    return context.with(traces.setSpan(parent, span), () =>
      this.#during(span, async () => {
        const answer = await work();
        const { outcome, error } = endOf(answer);
        span.setAttribute('tidemill.outcome', outcome);
        if (error !== undefined) this.#failed(span, error);
        return answer;
      }),
    );
  }

  plan<T>(changes: number, work: (trace: TraceContext | undefined) => Promise<T>): Promise<T> {
    const attributes = { 'messaging.system': 'tidemill', 'messaging.batch.message_count': changes };
    // The planner runs in the context that happened to start it, which did not cause these changes.
    const options = { attributes, root: true };
    return this.#tracer.startActiveSpan('plan', options, (span) =>
      this.#during(span, () => work(keptOf(this.#api, span))),
    );
  }

  async #during<T>(span: Otel.Span, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      this.#failed(span, error instanceof Error ? error : new Error(String(error)));
      throw error;
    } finally {
      span.end();
    }
  }

  #failed(span: Otel.Span, error: Error): void {
    span.recordException(error);
    span.setAttribute('error.type', error.name);
    span.setStatus({ code: this.#api.SpanStatusCode.ERROR, message: error.message });
  }
}
