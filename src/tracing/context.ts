import type * as Otel from '@opentelemetry/api';
import type { TraceContext } from '../core/tracer.js';

type Api = typeof Otel;

const TRACEPARENT = /^00-(?<traceId>[0-9a-f]{32})-(?<spanId>[0-9a-f]{16})-(?<flags>[0-9a-f]{2})$/u;

/** The context of a span, for storage; undefined if no SDK records spans. */
export function keptOf(api: Api, span: Otel.Span): TraceContext | undefined {
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
export function spanContextOf(api: Api, kept: TraceContext): Otel.SpanContext | undefined {
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
