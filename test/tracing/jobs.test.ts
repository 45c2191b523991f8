import { context, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api';
import type { ReadableSpan } from '@opentelemetry/sdk-trace-base';
import { describe, expect, it } from 'vitest';
import { memory } from '../../src/memory/index.js';
import { aMill } from '../support/mills.js';
import { eachStore } from '../support/stores.js';
import { ended, idOf, linksOf, spans, useTracing, within } from './spans.js';

useTracing();

eachStore('traces of jobs', ({ open }) => {
  it('a trace leads from the caller to the handler, and to the jobs that it enqueues', async () => {
    const mill = aMill(open());
    const seen: unknown[] = [];
    mill.job('second', () => undefined);
    mill.job('first', async (job) => {
      seen.push(job.data, trace.getSpan(context.active())?.spanContext().traceId);
      await mill.enqueue('second', {});
    });
    // Not started yet: it is stored and read back.
    const [outer, job] = await within('request', async (span) => [
      span.spanContext(),
      await mill.enqueue('first', { to: 'ada' }),
    ]);
    await mill.start();
    // The second one may end before the handler that enqueued it.
    await Promise.all([ended('run first'), ended('run second')]);
    const only = (name: string): ReadableSpan | undefined => spans(name)[0];
    const [asked, ran] = [only('enqueue first'), only('run first')];
    const [askedAgain, ranAgain] = [only('enqueue second'), only('run second')];
    expect(asked?.parentSpanContext?.spanId).toBe(outer.spanId);
    expect(ran?.parentSpanContext?.spanId).toBe(asked?.spanContext().spanId);
    expect(askedAgain?.parentSpanContext?.spanId).toBe(ran?.spanContext().spanId);
    expect(ranAgain?.spanContext().traceId).toBe(outer.traceId);
    expect([asked?.kind, ran?.kind]).toEqual([SpanKind.PRODUCER, SpanKind.CONSUMER]);
    // The payload is the caller's own, and nothing else is in it.
    expect(seen).toEqual([{ to: 'ada' }, outer.traceId]);
    const stored = await mill.jobs.get(job.id);
    const { traceId, spanId } = asked!.spanContext();
    expect(stored?.trace).toEqual({ traceparent: `00-${traceId}-${spanId}-01` });
    expect(stored?.data).toEqual({ to: 'ada' });
  });

  it('jobs of one enqueueMany have separate traces, linked to the call', async () => {
    const mill = aMill(open());
    mill.job('one', () => undefined);
    mill.job('other', () => undefined);
    await mill.enqueueMany([{ name: 'one' }, { name: 'one' }, { name: 'other' }]);
    await mill.start();
    const runs = [...(await ended('run one', 2)), ...(await ended('run other'))];
    const [call] = spans('enqueue');
    expect(call?.attributes['messaging.batch.message_count']).toBe(3);
    for (const run of runs) {
      expect(run.parentSpanContext).toBeUndefined();
      expect(linksOf(run)).toEqual([idOf(call!.spanContext())]);
    }
    expect(new Set(runs.map((run) => run.spanContext().traceId)).size).toBe(3);
  });
});

describe('the span of an attempt', () => {
  it('the span of an attempt records its outcome and its error', async () => {
    const mill = aMill(memory());
    mill.job('fragile', { retryPolicy: { type: 'fixed', interval: 1, maxAttempts: 2 } }, (job) => {
      if (job.attempt === 1) throw new TypeError('no paper');
    });
    await mill.start();
    const { id } = await mill.enqueue('fragile');
    const [failed, done] = await ended('run fragile', 2);
    expect(failed?.status).toEqual({ code: SpanStatusCode.ERROR, message: 'no paper' });
    expect(failed?.events[0]?.name).toBe('exception');
    expect(failed?.attributes).toEqual({
      'messaging.system': 'tidemill',
      'messaging.operation.name': 'run',
      'messaging.operation.type': 'process',
      'messaging.destination.name': 'fragile',
      'messaging.message.id': id,
      'tidemill.kind': 'job',
      'tidemill.attempt': 1,
      'tidemill.outcome': 'threw',
      'error.type': 'TypeError',
    });
    expect(done?.attributes).toMatchObject({ 'tidemill.attempt': 2, 'tidemill.outcome': 'returned' });
    expect(done?.status.code).toBe(SpanStatusCode.UNSET);
  });

  it('the span of an attempt ends at the timeout, even if the handler ignores it', async () => {
    const mill = aMill(memory());
    mill.job(
      'deaf',
      { timeout: 20, retryPolicy: { type: 'fixed', interval: 1, maxAttempts: 1 } },
      () => new Promise(() => undefined),
    );
    await mill.start();
    await mill.enqueue('deaf');
    const [run] = await ended('run deaf');
    expect(run?.attributes['tidemill.outcome']).toBe('timedOut');
  });

  it('an attempt with an unreadable trace context is a root span', async () => {
    const store = memory();
    const mill = aMill(store);
    mill.job('odd', () => undefined);
    const now = new Date();
    const kept = {
      name: 'odd',
      data: {},
      status: 'pending',
      priority: 0,
      nextRunAt: now,
      createdAt: now,
    } as const;
    await store.jobs.insert([{ ...kept, trace: { traceparent: 'nonsense' } }]);
    await mill.start();
    const [run] = await ended('run odd');
    expect(run?.parentSpanContext).toBeUndefined();
  });
});

describe('rejected calls', () => {
  it('a rejected enqueue sets its span to an error', async () => {
    const mill = aMill(memory());
    await expect(mill.enqueue('mail', { no: () => undefined })).rejects.toThrow('data');
    expect(spans('enqueue mail')[0]?.status.code).toBe(SpanStatusCode.ERROR);
  });
});

describe('tracing: false', () => {
  it('tracing: false creates no spans and stores no trace context', async () => {
    const mill = aMill(memory(), { tracing: false });
    mill.job('mail', () => undefined);
    await mill.start();
    const { id } = await mill.enqueue('mail');
    await mill.jobs.result(id);
    expect([...spans('enqueue mail'), ...spans('run mail')]).toEqual([]);
    expect(await mill.jobs.get(id)).not.toHaveProperty('trace');
  });
});
