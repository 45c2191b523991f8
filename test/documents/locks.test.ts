import { describe, expect, it } from 'vitest';
import { LeaseLostError } from '../../src/core/errors.js';
import { gate } from '../support/mills.js';
import { aTestScheduler, at } from './test-scheduler.js';

/** A document whose handler runs until its signal aborts, for a reason that `aborted` tells. */
async function untilAborted() {
  const aborted = gate<unknown>();
  const fixture = aTestScheduler({
    lockDuration: '30s',
    onDocument: (_document, { signal }) =>
      new Promise<void>((resolve) => {
        signal.addEventListener('abort', () => {
          aborted.open(signal.reason);
          resolve();
        });
      }),
  });
  fixture.store.insert({});
  await fixture.scheduler.start();
  await fixture.clock.advance('1s');
  return { ...fixture, aborted: aborted.promise };
}

/** A document that runs until `end` opens, some time after its lock began. */
async function aLongRun(since: string) {
  const end = gate();
  const { store, scheduler, clock } = aTestScheduler({
    lockDuration: '30s',
    onDocument: () => end.promise,
  });
  store.insert({});
  await scheduler.start();
  await clock.advance(since);
  return { store, clock, end };
}

describe('locks of documents', () => {
  it('locks a document for lockDuration plus a small jitter, never until the same time twice', async () => {
    const { store, scheduler, clock } = aTestScheduler({ lockDuration: '1m' });
    for (let count = 0; count < 50; count += 1) store.insert({});
    await scheduler.start();
    await clock.advance(20);
    const untils = store.locks.map((until) => until.getTime());
    const asked = at('12:01:00.000').getTime();
    expect(Math.min(...untils)).toBeGreaterThanOrEqual(asked);
    expect(Math.max(...untils)).toBeLessThan(asked + 4_000);
    expect(new Set(untils).size).toBe(untils.length);
  });

  it("renews a document's lock while its handler runs, so that it does not run twice", async () => {
    const end = gate();
    const { store, scheduler, seen, clock } = aTestScheduler({
      lockDuration: '30s',
      onDocument: async (_document, { job }) => {
        seen.push(String(job.id));
        await end.promise;
      },
    });
    store.insert({});
    await scheduler.start();
    await clock.advance('10m');
    expect(store.jobs.get('job-1')?.sleepUntil?.getTime()).toBeGreaterThan(clock.now());
    end.open();
    await clock.advance('1s');
    expect(seen).toEqual(['job-1']);
    expect(store.jobs.get('job-1')?.sleepUntil).toBeNull();
  });

  it('keeps a sleepUntil that the handler wrote', async () => {
    const { store, scheduler, errors, clock } = aTestScheduler({
      onDocument: () => void (store.jobs.get('job-1')!.sleepUntil = at('18:00:00.000')),
    });
    store.insert({ interval: '* * * * *', autoRemove: true });
    await scheduler.start();
    await clock.advance('1s');
    expect(store.jobs.get('job-1')?.sleepUntil).toEqual(at('18:00:00.000'));
    expect(errors).toEqual([]);
  });

  it('aborts the handler and writes nothing when another writer changes sleepUntil', async () => {
    const { store, clock, errors, aborted } = await untilAborted();
    store.jobs.get('job-1')!.sleepUntil = at('20:00:00.000');
    await clock.advance('1m');
    expect(await aborted).toBeInstanceOf(LeaseLostError);
    expect(store.jobs.get('job-1')?.sleepUntil).toEqual(at('20:00:00.000'));
    expect(errors).toEqual([]);
  });

  it('aborts the handler and reports an error when its lock cannot be renewed in time', async () => {
    const { store, clock, errors, aborted } = await untilAborted();
    store.before = () => {
      throw new Error('away');
    };
    await clock.advance('40s');
    expect(String(await aborted)).toContain('could not be renewed in time');
    // Another scheduler took it meanwhile.
    store.jobs.get('job-1')!.sleepUntil = at('13:00:00.000');
    store.before = () => undefined;
    await clock.advance('10s');
    expect(store.jobs.get('job-1')?.sleepUntil).toEqual(at('13:00:00.000'));
    expect(new Set(errors.map(({ where }) => where))).toEqual(new Set(['renew', 'record']));
  });

  it('recovers a lock in a few writes after a long outage with uncertain renewals', async () => {
    const { store, clock, end } = await aLongRun('1s');
    store.after = () => {
      throw new Error('reset by peer');
    };
    store.before = () => {
      if (clock.now() > at('12:00:12.000').getTime()) throw new Error('away');
    };
    await clock.advance('20m');
    expect(store.jobs.get('job-1')?.sleepUntil?.getTime()).toBeLessThan(clock.now());
    [store.before, store.after] = [() => undefined, () => undefined];
    const tried = store.fences.length;
    await clock.advance('2s');
    expect(store.jobs.get('job-1')?.sleepUntil?.getTime()).toBeGreaterThan(clock.now());
    expect(store.fences.length - tried).toBeLessThanOrEqual(6);
    end.open();
    await clock.advance('1s');
    expect(store.jobs.get('job-1')?.sleepUntil).toBeNull();
  });

  it('writes without a precondition if lockDuration is 0', async () => {
    const { store, scheduler, clock, seen } = aTestScheduler({ lockDuration: 0 });
    store.insert({});
    await scheduler.start();
    await clock.advance('1s');
    expect(seen).toEqual(['job-1']);
    expect(store.fences).toEqual([undefined]);
  });
});

describe('lost responses to a document scheduler', () => {
  it('runs a document after its lock expires when the response to lockNext is lost', async () => {
    const { store, scheduler, seen, clock } = aTestScheduler({ lockDuration: '1m' });
    let lost = 1;
    store.after = (method) => {
      if (method === 'lockNext' && (lost -= 1) >= 0) throw new Error('reset by peer');
    };
    store.insert({});
    await scheduler.start();
    await clock.advance('59s');
    expect(seen).toEqual([]);
    await clock.advance('10s');
    expect(seen).toEqual(['job-1']);
  });

  it('records a run once when the responses to the write are lost', async () => {
    const { store, scheduler, seen, clock, errors } = aTestScheduler();
    let lost = 2;
    store.after = (method) => {
      if (method === 'update' && (lost -= 1) >= 0) throw new Error('reset by peer');
    };
    store.insert({ interval: '0 * * * *' });
    await scheduler.start();
    await clock.advance('61m');
    expect(seen).toEqual(['job-1', 'job-1']);
    expect(store.jobs.get('job-1')?.sleepUntil).toEqual(at('14:00:00.000'));
    expect(errors.map(({ where }) => where)).toEqual(['record', 'record']);
  });

  it('records a run whether a renewal with a lost response was written or not', async () => {
    for (const moment of ['before', 'after'] as const) {
      const { store, clock, end } = await aLongRun('9s');
      let lost = 1;
      store[moment] = () => {
        if ((lost -= 1) >= 0) throw new Error('reset by peer');
      };
      await clock.advance('2s');
      end.open();
      await clock.advance('1s');
      expect(store.jobs.get('job-1')?.sleepUntil).toBeNull();
    }
  });
});
