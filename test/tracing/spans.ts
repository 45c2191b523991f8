import { context, trace, type Span } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
  type ReadableSpan,
} from '@opentelemetry/sdk-trace-base';
import { afterAll, afterEach, beforeAll } from 'vitest';
import { until } from '../support/mills.js';

const exporter = new InMemorySpanExporter();

/** Call this once in a file: sets up tracing as an application would. */
export function useTracing(): void {
  beforeAll(() => {
    context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
    trace.setGlobalTracerProvider(
      new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }),
    );
  });
  afterEach(() => exporter.reset());
  afterAll(() => {
    trace.disable();
    context.disable();
  });
}

export const spans = (name: string): readonly ReadableSpan[] =>
  exporter.getFinishedSpans().filter((span) => span.name === name);

/** Waits for spans of that name to have ended. */
export const ended = (name: string, count = 1): Promise<readonly ReadableSpan[]> =>
  until(`${String(count)} spans of ${name} have ended`, () => spans(name).length >= count && spans(name));

/** The application's own work, in a span of its own. */
export function within<T>(name: string, work: (span: Span) => Promise<T>): Promise<T> {
  return trace.getTracer('application').startActiveSpan(name, async (span) => {
    try {
      return await work(span);
    } finally {
      span.end();
    }
  });
}

/** Which span it points at, as a text. */
export const idOf = ({ traceId, spanId }: { traceId: string; spanId: string }): string =>
  `${traceId}/${spanId}`;
export const linksOf = ({ links }: ReadableSpan): string[] => links.map((link) => idOf(link.context));
