import { expect, it } from 'vitest';
import type { DocumentOptions, Tidemill } from '../../../src/index.js';
import type { Store } from '../../../src/store/port.js';
import { Outage } from '../../support/outage.js';
import { aMill, gate, until } from '../../support/mills.js';
import {
  eachDocumentStore,
  future,
  past,
  type DocumentFixture,
  type FixtureCase,
} from './document-fixtures.js';

/** Counts what runs at once, and when it started. */
function observer() {
  const seen = { running: 0, most: 0, starts: [] as number[] };
  const run = async (ms: number): Promise<void> => {
    seen.running += 1;
    seen.most = Math.max(seen.most, seen.running);
    seen.starts.push(performance.now());
    await new Promise((resolve) => setTimeout(resolve, ms));
    seen.running -= 1;
  };
  return { seen, run };
}

const insertMany = (fixture: DocumentFixture, count: number): Promise<string[]> =>
  Promise.all(Array.from({ length: count }, (_, at) => fixture.insert({ sleepUntil: past(1_000 + at) })));

const storeOf = ({ store }: DocumentFixture): Store => store as Store;

/** Mills of one cluster, each with a schedule on the documents. */
async function started(
  fixture: DocumentFixture,
  options: Partial<DocumentOptions>,
  { mills = 2, define }: { mills?: number; define?: (mill: Tidemill) => void } = {},
): Promise<Tidemill[]> {
  const all = Array.from({ length: mills }, () => aMill(storeOf(fixture)));
  for (const mill of all) {
    define?.(mill);
    mill.documents({
      collection: fixture.collection,
      concurrency: 10,
      onDocument: () => undefined,
      ...options,
    });
  }
  await Promise.all(all.map((mill) => mill.start()));
  return all;
}

/** On every store that a mill runs: a standalone scheduler has no limits. */
const eachStoreOfMills = (what: string, facts: (fixture: FixtureCase) => void): void =>
  eachDocumentStore(what, facts, ({ name }) => name !== 'three methods');

eachStoreOfMills('limits of document schedules', ({ open }) => {
  it('never runs more documents than the limit, and runs that many', async () => {
    const fixture = await open();
    const { seen, run } = observer();
    await insertMany(fixture, 30);
    await started(fixture, { limits: { concurrency: 3 }, onDocument: () => run(20) });
    await until('all have run', () => seen.starts.length === 30 && seen.running === 0);
    expect(seen.most).toBe(3);
  });

  it('starts no more documents than the rate in any window', async () => {
    const fixture = await open();
    const { seen, run } = observer();
    await insertMany(fixture, 40);
    const rate = { limit: 10, per: '500ms', burst: 3 } as const;
    await started(fixture, { limits: { rate }, onDocument: () => run(1) });
    await until('all have run', () => seen.starts.length === 40);
    const tookMs = (seen.starts.at(-1) ?? 0) - (seen.starts[0] ?? 0);
    expect(tookMs).toBeGreaterThan(1_500);
  });

  it('gives the start of a run back that was missed and is skipped', async () => {
    const fixture = await open();
    const ran: string[] = [];
    const missed = await fixture.insert({ sleepUntil: past(7_200_000), interval: '@every 1h' });
    const [mill] = await started(
      fixture,
      {
        missed: 'skip',
        limits: { rate: { limit: 1, per: '10m' } },
        onDocument: (_document, { job }) => void ran.push(String(job.id)),
      },
      { mills: 1 },
    );
    const next = async () => (await fixture.get(missed))?.['sleepUntil'];
    await until(
      'it is skipped',
      async () => Math.abs(Number(await next()) - Date.now() - 1_800_000) < 1_800_000,
    );
    const id = await fixture.insert({ sleepUntil: new Date() });
    await until('the other has run', () => ran.length === 1);
    expect(ran).toEqual([id]);
    const [limit] = (await mill?.limits.list()) ?? [];
    expect(limit).toMatchObject({ kind: 'documents', name: fixture.collection, use: { startsInWindow: 1 } });
  });

  it('shares a limit with jobs, which leave documents their turns', async () => {
    const fixture = await open();
    const { seen, run } = observer();
    const order: string[] = [];
    const ids = await insertMany(fixture, 3);
    const [mill] = await started(
      fixture,
      {
        limits: { shared: ['erp'] },
        onDocument: () => {
          order.push('document');
          return run(5);
        },
      },
      {
        mills: 1,
        define: (one) => {
          one.limit('erp', { concurrency: 2 });
          one.job('work', { limits: { shared: ['erp'] } }, () => {
            order.push('job');
            return run(5);
          });
        },
      },
    );
    await mill?.enqueueMany(Array.from({ length: 200 }, () => ({ name: 'work', data: {} })));
    await until('all have run', () => seen.starts.length === 203 && seen.running === 0);
    expect(seen.most).toBe(2);
    expect(order.lastIndexOf('document')).toBeLessThan(195);
    await until('all is recorded', async () => (await fixture.get(ids[0] ?? ''))?.['sleepUntil'] === null);
  });

  it('opens the breaker after failures, tries one document, and goes on', async () => {
    const fixture = await open();
    let isBroken = true;
    let calls = 0;
    const ids = await insertMany(fixture, 6);
    const [mill] = await started(
      fixture,
      {
        concurrency: 1,
        breaker: { failures: 2, within: '1m', pause: '400ms' },
        retryPolicy: { type: 'fixed', interval: 10, maxAttempts: 50 },
        onError: () => undefined,
        onDocument: () => {
          calls += 1;
          if (isBroken) throw new Error('the other side is down');
        },
      },
      { mills: 1 },
    );
    const target = { kind: 'documents', name: fixture.collection } as const;
    const state = async () => (await mill?.limits.get(target))?.breaker?.state;
    await until('the breaker is open', async () => (await state()) === 'open');
    const atOpening = calls;
    const [named] = mill?.documentSchedules() ?? [];
    await until('a document says what it waits for', async () => {
      const [due] = (await named?.schedule.find({ state: 'due' }))?.items ?? [];
      if (due === undefined) return false;
      const reasons = await mill?.why({ ...target, id: due.id });
      return reasons?.some(({ code, until: at }) => code === 'breaker' && at instanceof Date) === true;
    });
    await until('one was tried, in vain', () => calls > atOpening);
    isBroken = false;
    const isDone = async (id: string) => (await fixture.get(id))?.['sleepUntil'] === null;
    await until('all are done', async () => (await Promise.all(ids.map(isDone))).every(Boolean));
    expect(await state()).toBe('closed');
    expect(calls - atOpening).toBeLessThan(12);
  });

  it('lists the limit with its use, changes it while it holds, and says what a document waits for', async () => {
    const fixture = await open();
    const hold = gate();
    let running = 0;
    await insertMany(fixture, 5);
    const [mill] = await started(
      fixture,
      {
        limits: { concurrency: 1 },
        onDocument: async () => {
          running += 1;
          await hold.promise;
        },
      },
      { mills: 1 },
    );
    const target = { kind: 'documents', name: fixture.collection } as const;
    await until('one runs', () => running === 1);
    expect(await mill?.limits.get(target)).toMatchObject({
      kind: 'documents',
      limits: { concurrency: 1 },
      use: { running: 1, waiting: 4 },
      source: 'code',
    });
    const [named] = mill?.documentSchedules() ?? [];
    const [due] = (await named?.schedule.find({ state: 'due' }))?.items ?? [];
    const text = `It waits for the name "${fixture.collection}", of which 1 run, the most in the cluster.`;
    expect(await mill?.why({ ...target, id: due?.id ?? '' })).toEqual([{ code: 'limit', text }]);
    await mill?.limits.set(target, { concurrency: 3 });
    await until('three run', () => running === 3);
    expect(await mill?.limits.get(target)).toMatchObject({ source: 'set', use: { running: 3 } });
    hold.open();
    await until('all have run', () => running === 5);
    await mill?.stop();
    expect(await mill?.limits.get(target)).toMatchObject({ use: { running: 0 } });
  });

  it('frees what an instance held once its lease has ended, and aborts what it runs by then', async () => {
    const fixture = await open();
    const outage = new Outage(storeOf(fixture));
    const ran: string[] = [];
    const schedule = (mill: Tidemill, name: string): void => {
      mill.on('error', () => undefined);
      mill.documents({
        collection: fixture.collection,
        limits: { concurrency: 1 },
        onDocument: async (_document, { signal }) => {
          ran.push(name);
          if (name !== 'dying') return;
          await new Promise((resolve) => signal.addEventListener('abort', resolve));
          ran.push('aborted');
          signal.throwIfAborted();
        },
      });
    };
    const dying = aMill(outage.store, { leaseDuration: '1s' });
    schedule(dying, 'dying');
    await dying.start();
    await insertMany(fixture, 2);
    await until('one runs', () => ran.length === 1);
    const other = aMill(storeOf(fixture), { leaseDuration: '1s' });
    schedule(other, 'other');
    await other.start();
    outage.reach = 'down';
    const diedAt = performance.now();
    await until('the other runs both', () => ran.filter((name) => name === 'other').length === 2);
    expect(performance.now() - diedAt).toBeLessThan(1_000 + 5_000);
    expect(ran).toEqual(['dying', 'aborted', 'other', 'other']);
    outage.reach = 'up';
  });

  it('locks nothing once the time of its permits has passed', async () => {
    const fixture = await open();
    const [store, holder, { signal }] = [storeOf(fixture), {}, new AbortController()];
    await insertMany(fixture, 3);
    await store.acquire(holder);
    const documents = store.documents?.({ collection: fixture.collection });
    await documents?.open?.({ counts: false });
    const call = { signal, notAfter: past(60_000) };
    expect(await documents?.lockMany?.(future(60_000), { limit: 2, ...call })).toEqual([]);
    expect((await documents?.lockNext(future(60_000), call)) ?? null).toBeNull();
    const inTime = { signal, notAfter: future(60_000) };
    expect(await documents?.lockMany?.(future(60_000), { limit: 2, ...inTime })).toHaveLength(2);
    expect((await documents?.lockNext(future(60_000), inTime)) ?? null).not.toBeNull();
    await documents?.close?.();
    await store.release(holder);
  });

  it('refuses limits that cannot hold', async () => {
    const fixture = await open();
    const { collection } = fixture;
    const onDocument = (): void => undefined;
    const undefinedOne = aMill(storeOf(fixture));
    const schedule = undefinedOne.documents({ collection, onDocument, limits: { shared: ['erp'] } });
    await expect(schedule.start()).rejects.toThrow('call mill.start()');
    const problem = `documents("${collection}"): the shared limit "erp" is not defined on this mill`;
    await expect(undefinedOne.start()).rejects.toThrow(problem);
    const late = aMill(storeOf(fixture));
    await late.start();
    expect(() => late.documents({ collection, onDocument, limits: { shared: ['erp'] } })).toThrow(problem);
    expect(() => late.documents({ collection, onDocument, limits: { concurrency: 0 } })).toThrow(
      'concurrency must be at least 1, got 0',
    );
    expect(() =>
      late.documents({ collection, onDocument, limits: { perKey: { key: 'a' } } as never }),
    ).toThrow('unknown option "perKey"');
    await expect(late.why({ kind: 'documents', name: collection, id: 'x' })).rejects.toThrow(
      `this mill has no document schedule of the name "${collection}"`,
    );
  });
});
