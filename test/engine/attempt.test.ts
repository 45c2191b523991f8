import { describe, expect, it, vi } from 'vitest';
import { AttemptTimeoutError, CancelledError } from '../../src/core/errors.js';
import type { JobRecord } from '../../src/core/records/job.js';
import type { Outcome } from '../../src/core/records/outcome.js';
import { Attempt, runAttempt } from '../../src/engine/attempt.js';
import type { WorkRunner } from '../../src/engine/work-runner.js';
import { virtualClock } from '../../src/testing/index.js';
import { gate } from '../support/mills.js';
import { aClaimed } from './support.js';

function anAttempt(timeoutMs: number | undefined, perform: (signal: AbortSignal) => Promise<Outcome>) {
  const clock = virtualClock(1_000);
  const attempt = new Attempt(aClaimed({ id: 'j1', name: 'slow' }), clock.now(), () => ({
    isHeld: () => true,
    note: () => undefined,
    unwritten: () => undefined,
  }));
  const runner = {
    perform: () => perform(attempt.signal),
    timeoutMs: () => timeoutMs,
  } as unknown as WorkRunner<JobRecord, unknown>;
  const abandoned = vi.fn();
  return { clock, attempt, abandoned, finished: runAttempt(attempt, { clock, runner, abandoned }) };
}

const ok: Outcome = { kind: 'returned', result: 1 };

describe('one run of a handler', () => {
  it("an attempt records its start and end by the store's clock", async () => {
    const end = gate<Outcome>();
    const { clock, finished } = anAttempt(undefined, () => end.promise);
    await clock.advance(500);
    end.open(ok);
    expect(await finished).toEqual({ outcome: ok, startedAt: 1_000, finishedAt: 1_500 });
  });

  it('an attempt without a timeout runs without a limit', async () => {
    const end = gate<Outcome>();
    const { clock, finished, attempt, abandoned } = anAttempt(undefined, () => end.promise);
    await clock.advance('40d');
    expect(attempt.signal.aborted).toBe(false);
    end.open(ok);
    expect((await finished).outcome).toBe(ok);
    expect(abandoned).not.toHaveBeenCalled();
  });

  it('an attempt that ends in time leaves no timer behind', async () => {
    const { clock, finished, attempt } = anAttempt(1_000, () => Promise.resolve(ok));
    expect((await finished).outcome).toBe(ok);
    await clock.advance('1h');
    expect(attempt.signal.aborted).toBe(false);
  });

  it('an attempt past its timeout fails at that moment, with an AttemptTimeoutError on its signal', async () => {
    const { clock, attempt, finished } = anAttempt(1_000, () => new Promise(() => undefined));
    await clock.advance(999);
    expect(attempt.signal.aborted).toBe(false);
    await clock.advance(1);
    const { outcome, finishedAt } = await finished;
    expect(finishedAt).toBe(2_000);
    expect(outcome).toMatchObject({ kind: 'timedOut' });
    expect(attempt.signal.reason).toBeInstanceOf(AttemptTimeoutError);
    expect((attempt.signal.reason as Error).message).toBe('slow j1 ran past its timeout of 1000 ms.');
  });

  it('an attempt that returns after its signal aborted has still timed out', async () => {
    const { clock, finished } = anAttempt(
      1_000,
      (signal) => new Promise((resolve) => signal.addEventListener('abort', () => resolve(ok))),
    );
    await clock.advance('1s');
    expect((await finished).outcome.kind).toBe('timedOut');
  });

  it('an attempt that ignores its timeout is handed over as abandoned', async () => {
    const end = gate<Outcome>();
    const { clock, attempt, abandoned, finished } = anAttempt(1_000, () => end.promise);
    await clock.advance('1s');
    await finished;
    expect(abandoned).toHaveBeenCalledExactlyOnceWith(attempt, expect.any(Promise));
    const handler = abandoned.mock.calls[0]![1] as Promise<Outcome>;
    end.open(ok);
    expect(await handler).toBe(ok);
  });

  it('an attempt keeps the first reason for which it was aborted', () => {
    const { attempt } = anAttempt(undefined, () => new Promise(() => undefined));
    const first = new CancelledError('first');
    attempt.abort(first);
    attempt.abort(new CancelledError('second'));
    expect(attempt.signal.reason).toBe(first);
  });
});
