import { expect, it } from 'vitest';
import type { Tidemill } from '../../../src/index.js';
import { once } from '../../../src/testing/conformance/fixtures.js';
import { aMill, gate, until } from '../../support/mills.js';
import { eachStore } from '../../support/stores.js';

const codesOf = async (mill: Tidemill, id: string): Promise<string[]> =>
  (await mill.why({ kind: 'jobs', id })).map(({ code }) => code);

eachStore('limits in operation', ({ open }) => {
  it('a change goes field by field, outlives a restart, and ends with a reset', async () => {
    const store = open();
    const aWorker = async (): Promise<Tidemill> => {
      const mill = aMill(store);
      const rate = { limit: 5, per: '1m' } as const;
      mill.limit('erp-api', { concurrency: 3 });
      mill.job('work', { limits: { concurrency: 2, rate, shared: ['erp-api'] } }, () => undefined);
      await mill.start();
      return mill;
    };
    const first = await aWorker();
    expect(await first.limits.list()).toMatchObject([
      { kind: 'job', name: 'work', source: 'code', use: { running: 0, startsInWindow: 0, waiting: 0 } },
      { kind: 'shared', name: 'erp-api', source: 'code', limits: { concurrency: 3 } },
    ]);
    await first.limits.set('work', { concurrency: 7 });
    const changed = await first.limits.set('work', { rate: null });
    expect(changed).toMatchObject({ source: 'set', limits: { concurrency: 7, shared: ['erp-api'] } });
    expect(changed.limits.rate).toBeUndefined();
    await first.limits.set({ kind: 'shared', name: 'erp-api' }, { rate: { limit: 9, per: '1s', burst: 2 } });
    await first.stop();
    const second = await aWorker();
    expect((await second.limits.get('work'))?.limits).toEqual(changed.limits);
    expect(await second.limits.get('erp-api')).toMatchObject({
      source: 'set',
      limits: { concurrency: 3, rate: { limit: 9, perMs: 1_000, burst: 2 } },
    });
    expect(await second.limits.reset('work')).toMatchObject({
      source: 'code',
      limits: { concurrency: 2, rate: { limit: 5, perMs: 60_000, burst: 1 } },
    });
    expect(await second.limits.get('nothing')).toBeUndefined();
  });

  it('a job says which limit of its name or key it waits for', async () => {
    const mill = aMill(open(), { concurrency: 20 });
    const end = gate();
    const keyed = { key: 'key', concurrency: 1 };
    mill.job('limited', { concurrency: 5, limits: { concurrency: 1 } }, () => end.promise);
    mill.job('keyed', { concurrency: 5, limits: { perKey: keyed } }, () => end.promise);
    mill.job(
      'slow',
      { concurrency: 5, limits: { perKey: { key: 'key', rate: { limit: 1, per: '10m' } } } },
      () => undefined,
    );
    await mill.start();
    const second = async (name: string): Promise<string> => {
      await mill.enqueue(name, { key: 'a' });
      await until('the first one has started', async () => {
        const jobs = await mill.jobs.count({ name, status: ['processing', 'completed'] });
        return jobs === 1;
      });
      return (await mill.enqueue(name, { key: 'a' })).id;
    };
    const [limited, byKey, byRate] = [await second('limited'), await second('keyed'), await second('slow')];
    await until('the limit is known', async () => (await codesOf(mill, limited)).includes('limit'));
    expect(await codesOf(mill, limited)).toEqual(['limit']);
    expect(await codesOf(mill, byKey)).toEqual(['key']);
    const [rate] = await mill.why({ kind: 'jobs', id: byRate });
    expect(rate).toMatchObject({ code: 'rate' });
    expect(rate?.text).toMatch(/^It waits for the rate of key "a", free in \d+\.\d s\.$/u);
    expect(rate?.until?.getTime()).toBeGreaterThan(Date.now());
    await mill.jobs.pause('limited');
    expect(await codesOf(mill, limited)).toEqual(['paused']);
    await mill.jobs.resume('limited');
    expect(await mill.limits.keys('keyed')).toMatchObject([{ key: 'a', running: 1, due: 1 }]);
    expect(await mill.limits.get('limited')).toMatchObject({ use: { running: 1, waiting: 1 } });
    end.open();
    await until('both have run', async () => (await mill.jobs.count({ status: ['completed'] })) === 5);
  });

  it('limits of keys alone, and shared ones alone, tell how much runs', async () => {
    const mill = aMill(open(), { concurrency: 20 });
    const end = gate();
    mill.limit('api', { concurrency: 9 });
    mill.job(
      'keyed',
      { concurrency: 5, limits: { perKey: { key: 'key', concurrency: 1 } } },
      () => end.promise,
    );
    mill.job('sharing', { concurrency: 5, limits: { shared: ['api'] } }, () => end.promise);
    await mill.start();
    await mill.enqueueMany(['a', 'b'].map((key) => ({ name: 'keyed', data: { key } })));
    await mill.enqueueMany([1, 2, 3].map(() => ({ name: 'sharing', data: {} })));
    await until('all run', async () => (await mill.jobs.count({ status: ['processing'] })) === 5);
    const jobs = (await mill.limits.list()).filter(({ kind }) => kind === 'job');
    expect(jobs.map(({ name, use: { running } }) => [name, running])).toEqual([
      ['keyed', 2],
      ['sharing', 3],
    ]);
    end.open();
    await until('all have run', async () => (await mill.jobs.count({ status: ['completed'] })) === 5);
  });

  it('keys that wait longest come first in their list', async () => {
    const mill = aMill(open());
    const end = gate();
    mill.job(
      'work',
      { concurrency: 9, limits: { perKey: { key: 'key', concurrency: 1 } } },
      () => end.promise,
    );
    const before = Date.now() - 60_000;
    const at = (ms: number): Date => new Date(before + ms);
    for (const [key, ms] of [
      ['b', 2_000],
      ['a', 1_000],
      ['c', 3_000],
    ] as const)
      await mill.enqueueMany([1, 2].map(() => ({ name: 'work', data: { key }, runAt: at(ms) })));
    await mill.start();
    await until('each runs one', async () => (await mill.jobs.count({ status: ['processing'] })) === 3);
    expect((await mill.limits.keys('work')).map(({ key }) => key)).toEqual(['a', 'b', 'c']);
    expect(await mill.limits.keys('work', { limit: 1 })).toMatchObject([{ key: 'a', running: 1, due: 1 }]);
    end.open();
    await until('all have run', async () => (await mill.jobs.count({ status: ['completed'] })) === 6);
  });

  it('a breaker opens after too many failures, tries one start, and closes when that succeeds', async () => {
    const store = open();
    const events: string[] = [];
    let failing = true;
    let running = 0;
    let mostOfTrial = 0;
    const mills = [aMill(store), aMill(store)] as const;
    for (const mill of mills) {
      for (const event of ['open', 'trial', 'close'] as const)
        mill.on(`breaker:${event}`, ({ kind, name }) => void events.push(`${event} ${kind} ${name}`));
      mill.limit('erp-api', { breaker: { failures: 3, within: '1m', pause: 300 } });
      mill.job('call', { retryPolicy: once, limits: { shared: ['erp-api'] } }, async () => {
        running += 1;
        // A trial that succeeds closes the breaker for both before they say so.
        if (failing && events.at(-1)?.startsWith('trial') === true)
          mostOfTrial = Math.max(mostOfTrial, running);
        await new Promise((resolve) => setTimeout(resolve, 5));
        running -= 1;
        if (failing) throw new Error('the service is down');
      });
    }
    await Promise.all(mills.map((mill) => mill.start()));
    const [mill] = mills;
    await mill.enqueueMany(Array.from({ length: 40 }, () => ({ name: 'call', data: {} })));
    await until('a trial has failed', () => events.filter((one) => one.startsWith('open')).length >= 2);
    failing = false;
    await until(
      () => `it is closed, after ${events.join()}`,
      () => events.at(-1) === 'close shared erp-api',
    );
    await until(
      'all have run',
      async () => (await mill.jobs.count({ status: ['pending', 'processing'] })) === 0,
    );
    // A start that was let through and found no time to be claimed is let through again.
    const turns = events.filter((event, n) => event !== events[n - 1]);
    expect(turns.slice(0, 3)).toEqual(['open shared erp-api', 'trial shared erp-api', 'open shared erp-api']);
    expect(mostOfTrial).toBeLessThanOrEqual(1);
  });

  it('an operator opens and closes a breaker, and jobs say that they wait for it', async () => {
    const mill = aMill(open());
    const events: string[] = [];
    mill.on('breaker:open', ({ name, until: end }) => void events.push(`open ${name} ${typeof end}`));
    mill.on('breaker:close', ({ name }) => void events.push(`close ${name}`));
    mill.job('call', { breaker: { failures: 9, within: '1m', pause: '10m' } }, () => undefined);
    await mill.start();
    const state = await mill.limits.breaker('call', 'open');
    expect(state).toMatchObject({ kind: 'job', name: 'call', breaker: { state: 'open' } });
    const { id } = await mill.enqueue('call', {});
    const [why] = await mill.why({ kind: 'jobs', id });
    expect(why).toMatchObject({ code: 'breaker', until: state.breaker?.until });
    expect(await mill.limits.breaker('call', 'closed')).toMatchObject({ breaker: { state: 'closed' } });
    await until('the job has run', async () => (await mill.jobs.get(id))?.status === 'completed');
    expect(events).toEqual(['open call object', 'close call']);
  });
});
