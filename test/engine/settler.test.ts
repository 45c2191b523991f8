import { describe, expect, it, vi } from 'vitest';
import { StoreError } from '../../src/core/errors.js';
import type { JobRecord } from '../../src/core/records/job.js';
import type { Finished } from '../../src/core/records/outcome.js';
import { BatchRecorder } from '../../src/engine/record/batch-recorder.js';
import { Settler } from '../../src/engine/record/settler.js';
import type { Conclusion, WorkRunner } from '../../src/engine/work-runner.js';
import { leaseOf, type JobStore, type SettleAnswer, type Settlement } from '../../src/store/port.js';
import { virtualClock } from '../../src/testing/index.js';
import { gate, until } from '../support/mills.js';
import { aClaimed } from './support.js';

const returned = (result: unknown = 'ok'): Finished => ({
  outcome: { kind: 'returned', result },
  finishedAt: 5,
});

/** A recorder over a store that answers as told, and a trigger that records the calls it gets. */
function aRecorder(answer: (batch: readonly Settlement[], call: number) => Promise<readonly SettleAnswer[]>) {
  const clock = virtualClock();
  const calls: { at: number; batch: readonly Settlement[] }[] = [];
  const held = vi.fn<JobStore['held']>((leases) => Promise.resolve(leases.map(() => undefined)));
  const insertFailedRun = vi.fn<JobStore['insertFailedRun']>(() => Promise.resolve());
  const settle = (batch: readonly Settlement[]): Promise<readonly SettleAnswer[]> => {
    calls.push({ at: clock.now(), batch });
    return answer(batch, calls.length);
  };
  const conclude = vi.fn((work: JobRecord, { outcome }: Finished): Conclusion<Settlement> => ({
    settlement: {
      lease: leaseOf(work),
      status: outcome.kind === 'returned' ? 'completed' : 'failed',
      set: {
        ...('result' in outcome ? { result: outcome.result } : {}),
        ...('error' in outcome ? { failReason: outcome.error.message } : {}),
      },
      historyLimit: 5,
      by: 'holder',
    },
  }));
  const [recorded, lost, error] = [vi.fn<WorkRunner<JobRecord, Settlement>['recorded']>(), vi.fn(), vi.fn()];
  const writer = new Settler({
    store: { settle, held, insertFailedRun },
    runner: { conclude, recorded },
    lost,
  });
  const recorder = new BatchRecorder({ writer, clock, error });
  const ids = (): string[] => recorder.unrecorded().map(({ work }) => work.id);
  return { recorder, ids, clock, calls, held, insertFailedRun, conclude, recorded, lost, error };
}

const all = (answer: SettleAnswer) => (batch: readonly Settlement[]) =>
  Promise.resolve(batch.map(() => answer));
const down = (transient: boolean): Promise<never> =>
  Promise.reject(new StoreError('no primary', { transient }));

describe('recording outcomes', () => {
  it('batches outcomes of the same moment into one command', async () => {
    const { recorder, calls, recorded } = aRecorder(all('settled'));
    for (let n = 0; n < 3; n += 1) recorder.push({ work: aClaimed(), finished: returned(n) });
    expect(await recorder.drain(1_000)).toBe(0);
    expect(calls.map(({ batch }) => batch.map(({ set }) => set.result))).toEqual([[0, 1, 2]]);
    expect(recorded).toHaveBeenCalledTimes(3);
  });

  it('writes at most 500 outcomes per command, and a second command only while a full batch waits', async () => {
    let under = 0;
    let most = 0;
    const { recorder, calls } = aRecorder(async (batch) => {
      under += 1;
      most = Math.max(most, under);
      await new Promise((resolve) => setImmediate(resolve));
      under -= 1;
      return batch.map(() => 'settled');
    });
    for (let n = 0; n < 1_200; n += 1) recorder.push({ work: aClaimed(), finished: returned() });
    await recorder.drain(1_000);
    expect(calls.map(({ batch }) => batch.length)).toEqual([500, 500, 200]);
    expect(most).toBe(2);
  });

  it('sets aside an outcome that a transaction blocks, records the others, and retries it', async () => {
    const held = aClaimed();
    let free = false;
    const { recorder, ids, clock, calls, recorded, lost } = aRecorder((batch) =>
      Promise.resolve(
        batch.map(({ lease }): SettleAnswer => (lease.id === held.id && !free ? 'blocked' : 'settled')),
      ),
    );
    const other = aClaimed();
    recorder.push({ work: held, finished: returned() });
    recorder.push({ work: other, finished: returned() });
    await until('the other is recorded', () => recorded.mock.calls.length === 1);
    expect(ids()).toEqual([held.id]);
    await clock.advance(2_000);
    const tried = calls.slice(1).map(({ batch }) => batch.map(({ lease }) => lease.id));
    expect(tried.length).toBeGreaterThan(1);
    expect(new Set(tried.flat())).toEqual(new Set([held.id]));
    recorder.push({ work: aClaimed(), finished: returned() });
    await until('a third is recorded', () => recorded.mock.calls.length === 2);
    free = true;
    await clock.advance(1_000);
    expect(recorded.mock.calls.map(([work]) => work.id)).toContain(held.id);
    expect(ids()).toEqual([]);
    expect(lost).not.toHaveBeenCalled();
  });

  it('counts outcomes that are still blocked as unrecorded when a drain times out', async () => {
    const { recorder, ids, clock } = aRecorder(all('blocked'));
    recorder.push({ work: aClaimed(), finished: returned() });
    await until('it was tried', () => ids().length === 1 && recorder.backlog === 1);
    const drained = recorder.drain(3_000);
    await clock.advance(3_000);
    expect(await drained).toBe(1);
  });

  it('passes unwritten notes on with the outcome', async () => {
    const { recorder, conclude } = aRecorder(all('settled'));
    const extra = { progress: { value: null }, logs: [{ at: new Date(1), message: 'late line' }] };
    const work = aClaimed();
    recorder.push({ work, finished: returned('r'), extra });
    await recorder.drain(1_000);
    expect(conclude.mock.calls).toEqual([[work, returned('r'), { refusals: 0, extra }]]);
  });

  it('stores a failed run before it settles, so that a crash in between loses nothing', async () => {
    const order: string[] = [];
    const { recorder, conclude, insertFailedRun } = aRecorder((batch) => {
      order.push('settle');
      return Promise.resolve(batch.map(() => 'settled'));
    });
    const work = aClaimed();
    const failedRun = { failCount: 1 } as NonNullable<Conclusion<Settlement>['failedRun']>;
    const settlement = {
      lease: leaseOf(work),
      status: 'pending',
      set: {},
      historyLimit: 5,
      by: 'holder',
    } as const;
    conclude.mockReturnValue({ settlement, failedRun });
    insertFailedRun.mockImplementation(() => Promise.resolve(void order.push('keep')));
    recorder.push({ work, finished: returned() });
    await recorder.drain(1_000);
    expect(order).toEqual(['keep', 'settle']);
    expect(insertFailedRun).toHaveBeenCalledWith(work, failedRun);
  });
});

describe('recording outcomes during database errors', () => {
  it('retries a failed write with backoff, at no cost to the job', async () => {
    const { recorder, clock, calls, recorded, error, lost } = aRecorder((batch, call) =>
      call <= 8 ? down(true) : Promise.resolve(batch.map(() => 'settled')),
    );
    const work = aClaimed();
    recorder.push({ work, finished: returned('kept') });
    await clock.advance('1m');
    expect(calls.map(({ at }) => at)).toEqual([0, 50, 150, 350, 750, 1_550, 3_150, 5_150, 7_150]);
    expect(calls[8]!.batch[0]).toMatchObject({ status: 'completed', set: { result: 'kept' } });
    expect(recorded).toHaveBeenCalledTimes(1);
    expect(error).toHaveBeenCalledTimes(8);
    expect(lost).not.toHaveBeenCalled();
  });

  it('retries a refused outcome with increasing delays until the database accepts it', async () => {
    const { recorder, ids, clock, calls, recorded, error } = aRecorder((batch, call) =>
      call <= 7 ? down(false) : Promise.resolve(batch.map(() => 'settled')),
    );
    recorder.push({ work: aClaimed({ id: 'odd' }), finished: returned('kept') });
    await clock.advance('1m');
    expect(calls.map(({ at }) => at / 1_000)).toEqual([0, 2, 6, 14, 30]);
    expect(recorder.refused).toEqual([{ name: 'work', id: 'odd', reason: 'no primary' }]);
    expect(ids()).toEqual(['odd']);
    expect(error.mock.calls[0]![0]).toMatchObject({ code: 'OUTCOME_REFUSED' });
    await clock.advance('5m');
    expect(calls.map(({ at }) => at / 1_000).slice(5)).toEqual([62, 122, 182]);
    expect(recorded.mock.calls[0]![1]).toEqual(returned('kept'));
    expect(recorder.refused).toEqual([]);
    expect(recorder.backlog).toBe(0);
  });

  it('splits a refused batch in halves, so that only the faulty outcome waits', async () => {
    const { recorder, ids, calls, recorded } = aRecorder((batch) =>
      batch.some(({ lease }) => lease.id === 'poison')
        ? down(false)
        : Promise.resolve(batch.map(() => 'settled')),
    );
    for (let n = 0; n < 64; n += 1)
      recorder.push({ work: aClaimed(n === 40 ? { id: 'poison' } : {}), finished: returned() });
    await until('the others are recorded', () => recorded.mock.calls.length === 63);
    await until('one is set aside', () => recorder.refused.length === 1);
    expect(calls.length).toBeLessThanOrEqual(13);
    recorder.push({ work: aClaimed(), finished: returned() });
    await until('a later one is recorded', () => recorded.mock.calls.length === 64);
    expect(ids()).toEqual(['poison']);
  });

  it('splits a batch after two transient failures, so that one bad outcome blocks no other', async () => {
    const { recorder, ids, clock, calls, recorded, error } = aRecorder((batch) =>
      batch.some(({ lease }) => lease.id === 'poison')
        ? down(true)
        : Promise.resolve(batch.map(() => 'settled')),
    );
    for (let n = 0; n < 64; n += 1)
      recorder.push({ work: aClaimed(n === 40 ? { id: 'poison' } : {}), finished: returned() });
    await clock.advance('1s');
    expect(recorded).toHaveBeenCalledTimes(63);
    expect(calls.length).toBeLessThan(40);
    expect(recorder.refused).toEqual([{ name: 'work', id: 'poison', reason: 'no primary' }]);
    expect(error.mock.calls.at(-1)![0]).toMatchObject({ code: 'OUTCOME_REFUSED' });
    expect(ids()).toEqual(['poison']);
  });

  it('records later outcomes while two bad ones keep failing', async () => {
    const { recorder, clock, recorded } = aRecorder((batch) =>
      batch.some(({ lease }) => lease.id.startsWith('poison'))
        ? down(true)
        : Promise.resolve(batch.map(() => 'settled')),
    );
    for (const id of ['poison-1', 'poison-2'])
      recorder.push({ work: aClaimed({ id }), finished: returned() });
    await clock.advance('10s');
    expect(recorder.refused).toEqual([]);
    for (let n = 0; n < 20; n += 1) recorder.push({ work: aClaimed(), finished: returned() });
    await clock.advance('10s');
    expect(recorded).toHaveBeenCalledTimes(20);
    expect(recorder.refused.map(({ id }) => id).sort()).toEqual(['poison-1', 'poison-2']);
  });

  it('writes smaller batches if large ones time out', async () => {
    const { recorder, clock, calls, recorded } = aRecorder((batch) =>
      batch.length > 100 ? down(true) : Promise.resolve(batch.map(() => 'settled')),
    );
    for (let n = 0; n < 500; n += 1) recorder.push({ work: aClaimed(), finished: returned() });
    await clock.advance('10s');
    expect(recorded).toHaveBeenCalledTimes(500);
    expect(calls.length).toBeLessThan(30);
    expect(recorder.refused).toEqual([]);
  });

  it('sends at most two commands before each wait during an outage, and all outcomes after it', async () => {
    let isDown = true;
    const { recorder, clock, calls, recorded } = aRecorder((batch) =>
      isDown ? down(true) : Promise.resolve(batch.map(() => 'settled')),
    );
    for (let n = 0; n < 500; n += 1) recorder.push({ work: aClaimed(), finished: returned() });
    await clock.advance('1m');
    const times = calls.map(({ at }) => at);
    expect(Math.max(...times.map((at) => times.filter((other) => other === at).length))).toBe(2);
    isDown = false;
    const before = calls.length;
    await clock.advance('3s');
    expect(recorded).toHaveBeenCalledTimes(500);
    expect(calls.length - before).toBeLessThan(12);
  });

  it('keeps retrying during an outage of any length', async () => {
    let away = true;
    const { recorder, clock, calls, recorded } = aRecorder((batch) => {
      if (batch.length === 0) throw new Error('There is nothing to be asked for.');
      return away ? down(true) : all('settled')(batch);
    });
    for (let n = 0; n < 2; n += 1) recorder.push({ work: aClaimed(), finished: returned() });
    await clock.advance(3_600_000);
    expect(calls.length).toBeGreaterThan(1_500);
    away = false;
    await clock.advance(5_000);
    expect(recorded).toHaveBeenCalledTimes(2);
  });

  it('records one refused outcome while another one keeps failing', async () => {
    let isMended = false;
    const { recorder, ids, clock, recorded } = aRecorder((batch) => {
      if (batch.some(({ lease }) => lease.id === 'poison')) return isMended ? down(true) : down(false);
      if (batch.some(({ lease }) => lease.id === 'odd') && !isMended) return down(false);
      return Promise.resolve(batch.map(() => 'settled'));
    });
    for (const id of ['poison', 'odd']) recorder.push({ work: aClaimed({ id }), finished: returned() });
    await clock.advance('1s');
    expect(recorder.refused).toHaveLength(2);
    isMended = true;
    await clock.advance('10s');
    expect(recorded.mock.calls.map(([{ id }]) => id)).toEqual(['odd']);
    expect(ids()).toEqual(['poison']);
  });

  it('never turns an error of the store into a failure of the job', async () => {
    const { recorder, clock, calls, recorded } = aRecorder((batch, call) =>
      call === 1
        ? Promise.reject(new TypeError('socket is null'))
        : Promise.resolve(batch.map(() => 'settled')),
    );
    recorder.push({ work: aClaimed(), finished: returned('kept') });
    await clock.advance('5s');
    expect(calls.map(({ batch }) => batch[0]?.set.result)).toEqual(['kept', 'kept']);
    expect(recorded.mock.calls[0]![1]).toEqual(returned('kept'));
  });

  it('tries a refused outcome once more at a stop, and then gives up', async () => {
    const { recorder, calls } = aRecorder(() => down(false));
    recorder.push({ work: aClaimed(), finished: returned() });
    await until('it is set aside', () => recorder.refused.length === 1);
    expect(await recorder.drain(10_000)).toBe(1);
    expect(calls).toHaveLength(2);
  });

  it('retries the rest of a batch if the database goes down while it is split', async () => {
    let isDown = false;
    const { recorder, clock, recorded } = aRecorder((batch, call) => {
      if (call === 2) isDown = true;
      if (isDown) return down(true);
      return batch.length > 1 ? down(false) : Promise.resolve(batch.map(() => 'settled'));
    });
    for (let n = 0; n < 4; n += 1) recorder.push({ work: aClaimed(), finished: returned() });
    await clock.advance('10s');
    isDown = false;
    await clock.advance('10s');
    expect(recorded).toHaveBeenCalledTimes(4);
  });

  it('gives up at the end of a stop and returns the number of unrecorded outcomes', async () => {
    const { recorder, clock } = aRecorder(() => down(true));
    for (let n = 0; n < 3; n += 1) recorder.push({ work: aClaimed(), finished: returned() });
    const drained = recorder.drain(10_000);
    await clock.advance('11s');
    expect(await drained).toBe(3);
  });

  it('gives up at the end of a stop if the database never answers', async () => {
    const { recorder, clock, calls } = aRecorder(() => new Promise(() => undefined));
    for (let n = 0; n < 3; n += 1) recorder.push({ work: aClaimed(), finished: returned() });
    await until('the write is under way', () => calls.length === 1);
    const drained = recorder.drain(10_000);
    await clock.advance('11s');
    const late = new Promise((resolve) => setTimeout(resolve, 1_000, 'still waiting'));
    expect(await Promise.race([drained, late])).toBe(3);
  });

  it('counts outcomes under way as not yet recorded', async () => {
    const written = gate();
    const { recorder, ids, calls } = aRecorder(async (batch) => {
      await written.promise;
      return batch.map(() => 'settled');
    });
    recorder.push({ work: aClaimed({ id: 'first' }), finished: returned() });
    await until('the write is under way', () => calls.length === 1);
    recorder.push({ work: aClaimed({ id: 'second' }), finished: returned() });
    expect(ids().sort()).toEqual(['first', 'second']);
    written.open();
    expect(await recorder.drain(1_000)).toBe(0);
    expect(ids()).toEqual([]);
  });
});

describe('answers of the store to a settlement', () => {
  it('a "lost" answer reports the loss and records nothing', async () => {
    const { recorder, recorded, lost } = aRecorder(all('lost'));
    const work = aClaimed();
    recorder.push({ work, finished: returned() });
    await recorder.drain(1_000);
    expect(lost).toHaveBeenCalledExactlyOnceWith(expect.objectContaining({ work }));
    expect(recorded).not.toHaveBeenCalled();
  });

  it('a "changed" answer makes the settler read the job and decide again', async () => {
    const { recorder, held, conclude, recorded, calls } = aRecorder((batch, call) =>
      Promise.resolve(batch.map(() => (call === 1 ? 'changed' : 'settled'))),
    );
    const work = aClaimed({ scheduleRev: 1 });
    const now = { ...work, scheduleRev: 2, repeatInterval: '@daily' };
    held.mockResolvedValue([now]);
    const finished = returned();
    recorder.push({ work, finished });
    await recorder.drain(1_000);
    expect(held).toHaveBeenCalledWith([leaseOf(work)]);
    expect(conclude.mock.calls).toEqual([
      [work, finished, { refusals: 0 }],
      [now, finished, { refusals: 0 }],
    ]);
    expect(calls).toHaveLength(2);
    expect(recorded).toHaveBeenCalledExactlyOnceWith(now, finished, expect.anything());
  });

  it('a "changed" answer for a job that is gone counts as lost', async () => {
    const { recorder, held, lost, recorded } = aRecorder(all('changed'));
    held.mockResolvedValue([undefined]);
    const work = aClaimed();
    recorder.push({ work, finished: returned() });
    await recorder.drain(1_000);
    expect(lost).toHaveBeenCalledExactlyOnceWith(expect.objectContaining({ work }));
    expect(recorded).not.toHaveBeenCalled();
  });

  it('a "refused" answer fails the job with a short reason, without the oversized values', async () => {
    const { recorder, held, calls, recorded } = aRecorder((batch, call) =>
      Promise.resolve(batch.map(() => (call === 1 ? 'refused' : 'settled'))),
    );
    const work = aClaimed();
    held.mockResolvedValue([work]);
    const logs = [{ at: new Date(0), message: 'x'.repeat(1_000_000) }];
    recorder.push({
      work,
      finished: returned('x'.repeat(1_000_000)),
      extra: { logs, progress: { value: 'x'.repeat(1_000_000) } },
    });
    await recorder.drain(1_000);
    const { status, set, ...rest } = calls[1]!.batch[0]!;
    expect(status).toBe('failed');
    expect(set.failReason).toBe(
      'The result, progress and log of this job together exceed what the database can hold.',
    );
    expect(JSON.stringify([set, rest]).length).toBeLessThan(1_000);
    const outcome = recorded.mock.calls[0]![1].outcome;
    expect(outcome).toMatchObject({ kind: 'threw' });
    expect((outcome as { error: Error }).error.stack).toBeUndefined();
  });

  it('handles each answer of a mixed batch separately', async () => {
    const [settled, gone, changed] = [aClaimed(), aClaimed(), aClaimed()];
    const { recorder, held, lost, recorded, calls } = aRecorder((batch, call) =>
      Promise.resolve(call === 1 ? ['settled', 'lost', 'changed'] : batch.map(() => 'settled')),
    );
    held.mockResolvedValue([changed]);
    for (const work of [settled, gone, changed]) recorder.push({ work, finished: returned() });
    await recorder.drain(1_000);
    expect(calls.map(({ batch }) => batch.length)).toEqual([3, 1]);
    expect(lost.mock.calls).toMatchObject([[{ work: gone }]]);
    expect(recorded.mock.calls.map(([work]) => work.id)).toEqual([settled.id, changed.id]);
  });
});
