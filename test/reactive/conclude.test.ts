import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FatalError } from '../../src/core/errors.js';
import type { Finished, Outcome } from '../../src/core/records/outcome.js';
import type { TaskRecord } from '../../src/core/records/task.js';
import { concludeTask, type ConcludeOptions } from '../../src/reactive/run/conclude.js';
import { retryRule } from '../../src/time/retry.js';

const at = (ms: number): Date => new Date(ms);

const aTask = (fields: Partial<TaskRecord> = {}): TaskRecord => ({
  _id: { task: 'sync', id: 1 },
  key: { task: 'sync', id: 1 },
  id: 'sync/1',
  name: 'sync',
  task: 'sync',
  sourceDocId: 1,
  status: 'processing',
  scheduledAt: at(0),
  initialScheduledAt: at(0),
  attempts: 1,
  createdAt: at(0),
  updatedAt: at(0),
  lockedAt: at(0),
  leaseToken: 'life.1',
  ...fields,
});

const options = (fields: Partial<ConcludeOptions> = {}): ConcludeOptions => ({
  instanceId: 'me',
  retry: retryRule('test', { type: 'fixed', interval: 100, maxAttempts: 3 }),
  historyLimit: 5,
  resetRetries: true,
  ...fields,
});

const ended = (outcome: Outcome): Finished => ({ outcome, startedAt: 1_000, finishedAt: 1_250 });

describe('the end of a task attempt', () => {
  it('a returned attempt completes the task with its duration', () => {
    const { settlement } = concludeTask(aTask(), ended({ kind: 'returned', result: undefined }), options());
    expect(settlement).toMatchObject({
      status: 'completed',
      success: { at: at(1_250), durationMs: 250 },
      takeBack: false,
      skipped: false,
      entry: { status: 'completed', attempt: 1, durationMs: 250 },
    });
  });

  it('a skipped attempt completes the task without a success', () => {
    const { settlement } = concludeTask(aTask(), ended({ kind: 'skipped' }), options());
    expect(settlement).toMatchObject({ status: 'completed', skipped: true, entry: { status: 'skipped' } });
    expect(settlement.success).toBeUndefined();
  });

  it('a deferred or released attempt does not count', () => {
    const deferred = concludeTask(aTask(), ended({ kind: 'deferred', runAt: at(9_000) }), options());
    expect(deferred.settlement).toMatchObject({
      status: 'pending',
      scheduledAt: at(9_000),
      takeBack: true,
      deferred: true,
    });
    const released = concludeTask(aTask(), ended({ kind: 'released' }), options());
    expect(released.settlement).toMatchObject({ status: 'pending', takeBack: true, deferred: false });
    expect(released.settlement.scheduledAt).toBeUndefined();
  });

  it('a failed attempt is retried until the attempts are used up', () => {
    const error = new Error('no');
    const first = concludeTask(aTask(), ended({ kind: 'threw', error }), options());
    expect(first).toMatchObject({
      retryAt: at(1_350),
      settlement: { status: 'pending', failure: { message: 'no', kind: 'error', firstErrorAt: at(1_250) } },
    });
    const last = concludeTask(
      aTask({ attempts: 3, firstErrorAt: at(5) }),
      ended({ kind: 'threw', error }),
      options(),
    );
    expect(last.retryAt).toBeUndefined();
    expect(last.settlement).toMatchObject({ status: 'failed', failure: { firstErrorAt: at(5) } });
  });

  it('a fatal error fails the task at once', () => {
    const outcome = { kind: 'threw', error: new FatalError('never') } as const;
    expect(concludeTask(aTask(), ended(outcome), options()).settlement.status).toBe('failed');
  });

  it('a task that crashed before it started gets another run, however many attempts it used', () => {
    const crash = { kind: 'crashed', error: new Error('gone') } as const;
    const unseen = concludeTask(aTask({ attempts: 9 }), ended(crash), options());
    expect(unseen.settlement.status).toBe('pending');
    const seen = concludeTask(aTask({ attempts: 9, startedToken: 'life.1' }), ended(crash), options());
    expect(seen.settlement.status).toBe('failed');
  });

  it('every outcome leads to exactly one consistent state', () => {
    const kinds: readonly Outcome[] = [
      { kind: 'returned', result: undefined },
      { kind: 'skipped' },
      { kind: 'released' },
      { kind: 'cancelled' },
      { kind: 'deferred', runAt: at(5_000) },
      { kind: 'threw', error: new Error('x') },
      { kind: 'timedOut', error: new Error('x') },
      { kind: 'crashed', error: new Error('x') },
    ];
    fc.assert(
      fc.property(fc.constantFrom(...kinds), fc.integer({ min: 1, max: 6 }), (outcome, attempts) => {
        const { settlement, retryAt } = concludeTask(aTask({ attempts }), ended(outcome), options());
        expect(['pending', 'completed', 'failed']).toContain(settlement.status);
        expect(settlement.takeBack && settlement.failure !== undefined).toBe(false);
        expect(retryAt !== undefined).toBe(
          settlement.status === 'pending' && settlement.failure !== undefined,
        );
        expect(settlement.success !== undefined && settlement.status !== 'completed').toBe(false);
      }),
    );
  });
});
