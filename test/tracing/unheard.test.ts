import { trace } from '@opentelemetry/api';
import { BasicTracerProvider } from '@opentelemetry/sdk-trace-base';
import { expect, it } from 'vitest';
import { Tracing } from '../../src/tracing/load.js';

it('there is a tracer only while an SDK is registered', async () => {
  const tracing = new Tracing(true);
  await tracing.ready;
  expect(tracing.tracer).toBeUndefined();
  trace.setGlobalTracerProvider(new BasicTracerProvider());
  expect(tracing.tracer).toBeDefined();
  trace.disable();
  expect(tracing.tracer).toBeUndefined();
});
