import { expect, it } from 'vitest';
import { LeaseLostError } from '../../../src/core/errors.js';
import { gate, until } from '../../support/mills.js';
import { eachDocumentStore, future, past, sleepUntil, watched } from './document-fixtures.js';

eachDocumentStore('documents that fail or change hands', ({ open }) => {
  it('parks a document whose interval cannot be parsed, and stores the reason', async () => {
    const fixture = await open();
    const { schedule, errors, ran } = watched(fixture);
    const id = await fixture.insert({ sleepUntil: past(), interval: '0 0 30 2 *', autoRemove: true });
    await schedule.start();
    await until('it is parked', async () => (await sleepUntil(fixture, id)) === null);
    await until('it is idle', () => schedule.isIdle());
    expect(ran).toEqual([id]);
    expect(errors.map(({ where }) => where)).toEqual(['interval']);
    expect((await fixture.get(id))?.['scheduleFailure']).toMatchObject({
      ended: true,
      reason: expect.stringContaining('never matches') as unknown,
    });
  });

  it('leaves a failed document locked if there is no retry policy', async () => {
    const fixture = await open();
    const { schedule, errors } = watched(fixture, {
      onDocument: () => {
        throw new Error('bad');
      },
    });
    const id = await fixture.insert({ sleepUntil: past() });
    await schedule.start();
    await until('it has failed', () => errors.length > 0);
    await until('it is idle', () => schedule.isIdle());
    expect(schedule.isProcessing()).toBe(false);
    expect(Number(await sleepUntil(fixture, id))).toBeGreaterThan(Date.now() + 300_000);
    expect((await fixture.get(id))?.['scheduleFailure'] ?? null).toBeNull();
  });

  it('counts failures in the document, and parks it after maxAttempts', async () => {
    const fixture = await open();
    const { schedule, ran } = watched(fixture, {
      retryPolicy: { type: 'fixed', interval: '10ms', maxAttempts: 3 },
      onDocument: () => {
        throw new Error(`bad '";--$`);
      },
    });
    const id = await fixture.insert({ sleepUntil: past(), autoRemove: true });
    await schedule.start();
    await until('it has ended', async () => (await sleepUntil(fixture, id)) === null);
    expect(ran).toEqual([id, id, id]);
    expect((await fixture.get(id))?.['scheduleFailure']).toMatchObject({
      count: 3,
      ended: true,
      reason: `bad '";--$`,
    });
  });

  it('resets the failure count when a document succeeds', async () => {
    const fixture = await open();
    let fails = 2;
    const { schedule, ran } = watched(fixture, {
      retryPolicy: { type: 'fixed', interval: '10ms' },
      onDocument: () => {
        if ((fails -= 1) >= 0) throw new Error('bad');
      },
    });
    const id = await fixture.insert({ sleepUntil: past(), interval: '@hourly' });
    await schedule.start();
    await until(
      'it has succeeded',
      async () => ran.length === 3 && Number(await sleepUntil(fixture, id)) > Date.now(),
    );
    await schedule.stop();
    expect((await fixture.get(id))?.['scheduleFailure'] ?? null).toBeNull();
  });

  it('keeps a sleepUntil that the handler wrote', async () => {
    const fixture = await open();
    const wish = future(7_200_000);
    const { schedule, errors } = watched(fixture, {
      onDocument: async (_document, { job }) => fixture.change(String(job.id), { sleepUntil: wish }),
    });
    const id = await fixture.insert({ sleepUntil: past(), interval: '* * * * * *', autoRemove: true });
    await schedule.start();
    await until('it is idle', () => schedule.isIdle());
    expect(await sleepUntil(fixture, id)).toEqual(wish);
    expect(errors).toEqual([]);
  });

  it('does not record the run of a scheduler whose document another one has locked since', async () => {
    const fixture = await open();
    const [first, second] = [gate(), gate()];
    const slow = watched(fixture, { onDocument: () => first.promise });
    const quick = watched(fixture, { onDocument: () => second.promise }, fixture.another());
    const id = await fixture.insert({ sleepUntil: past(), autoRemove: true });
    await slow.schedule.start();
    await until('the first has it', () => slow.ran.length === 1);
    // As if its lock had expired while its process was suspended.
    await fixture.change(id, { sleepUntil: past() });
    await quick.schedule.start();
    await until('the second has it', () => quick.ran.length === 1);
    const locked = await sleepUntil(fixture, id);
    first.open();
    await until('the first is over', () => !slow.schedule.isProcessing());
    expect(await sleepUntil(fixture, id)).toEqual(locked);
    second.open();
    await until('the second has recorded it', async () => (await fixture.get(id)) === undefined);
  });

  it('renews a lock while the handler runs, so that no other scheduler takes the document', async () => {
    const fixture = await open();
    const end = gate();
    const lockDuration = '3s';
    const holder = watched(fixture, { lockDuration, onDocument: () => end.promise });
    const rival = watched(fixture, { lockDuration }, fixture.another());
    const id = await fixture.insert({ sleepUntil: past() });
    await holder.schedule.start();
    await until('it runs', () => holder.ran.length === 1);
    const first = Number(await sleepUntil(fixture, id));
    await rival.schedule.start();
    await until('its first lock would be over', () => Date.now() > first + 500);
    expect(Number(await sleepUntil(fixture, id))).toBeGreaterThan(first);
    end.open();
    await until('it is recorded', async () => (await sleepUntil(fixture, id)) === null);
    expect([holder.ran, rival.ran]).toEqual([[id], []]);
  });

  it('aborts the handler of a document whose sleepUntil another writer changes', async () => {
    const fixture = await open();
    const reason = gate<unknown>();
    const { schedule, ran } = watched(fixture, {
      lockDuration: '600ms',
      onDocument: (_document, { signal }) =>
        new Promise<void>((resolve) => {
          signal.addEventListener('abort', () => {
            reason.open(signal.reason);
            resolve();
          });
        }),
    });
    const id = await fixture.insert({ sleepUntil: past() });
    await schedule.start();
    await until('it runs', () => ran.length === 1);
    const wish = future(3_600_000);
    await fixture.change(id, { sleepUntil: wish });
    expect(await reason.promise).toBeInstanceOf(LeaseLostError);
    await until('it is over', () => !schedule.isProcessing());
    expect(await sleepUntil(fixture, id)).toEqual(wish);
  });

  it('runs documents without a lock if lockDuration is 0', async () => {
    const fixture = await open();
    const { schedule, ran } = watched(fixture, { lockDuration: 0 });
    const id = await fixture.insert({ sleepUntil: past() });
    await schedule.start();
    await until('it is done', async () => (await sleepUntil(fixture, id)) === null);
    await until('it is idle', () => schedule.isIdle());
    expect(ran).toEqual([id]);
  });

  it('releases a document whose handler outlasts stop()', async () => {
    const fixture = await open();
    const due = past(5_000);
    const { schedule, ran } = watched(fixture, { onDocument: () => new Promise(() => undefined) });
    const id = await fixture.insert({ sleepUntil: due });
    await schedule.start();
    await until('it runs', () => ran.length === 1);
    await schedule.stop({ timeout: 0 });
    expect(await sleepUntil(fixture, id)).toEqual(due);
  });
});
