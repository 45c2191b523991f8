import { expect, it } from 'vitest';
import type { Tidemill, TidemillOptions } from '../../../src/index.js';
import { Outage } from '../../support/outage.js';
import { aMill as onStore, gate, until } from '../../support/mills.js';
import { eachPlanner, type TestDatabase, type Thing } from './test-databases.js';

const AT_ONCE = { collection: 'things', debounce: 0, task: 't' } as const;
const SLOTS: Partial<TidemillOptions> = { concurrency: 30, reactive: { concurrency: 30 } };
const things = (count: number): Thing[] => Array.from({ length: count }, (_, at) => ({ _id: at + 1, n: at }));

/** Counts what runs at once, and when it started. */
function observer() {
  const seen = { running: 0, most: 0, starts: [] as number[] };
  const run = async (ms: number, count = 1): Promise<void> => {
    seen.running += count;
    seen.most = Math.max(seen.most, seen.running);
    for (let at = 0; at < count; at += 1) seen.starts.push(performance.now());
    await new Promise((resolve) => setTimeout(resolve, ms));
    seen.running -= count;
  };
  return { seen, run };
}

/** Starts mills whose task is held back until all documents have been planned. */
async function planned(
  { docs, mill: aMill, count }: TestDatabase,
  all: readonly Thing[] | (() => readonly Thing[]),
  define: (mill: Tidemill) => unknown,
  mills = 2,
): Promise<Tidemill[]> {
  const started = Array.from({ length: mills }, () => aMill(SLOTS));
  for (const mill of started) await define(mill);
  await started[0]?.tasks.pause('t');
  await Promise.all(started.map((mill) => mill.start()));
  const inserted = typeof all === 'function' ? all() : all;
  await docs.insertMany(inserted);
  await until('all are planned', async () => (await count({ task: 't' })) === inserted.length);
  return started;
}

eachPlanner('limits of reactive tasks', (aDatabase) => {
  it('never runs more tasks of a name than its limit, and runs that many', async () => {
    const database = await aDatabase();
    const { seen, run } = observer();
    const [mill] = await planned(database, things(30), (one) =>
      one.reactiveTask({ ...AT_ONCE, limits: { concurrency: 3 }, handler: () => run(20) }),
    );
    await mill?.tasks.resume('t');
    await until('all have run', () => seen.starts.length === 30 && seen.running === 0);
    expect(seen.most).toBe(3);
  });

  it('counts tasks, not calls, of a task that runs in batches', async () => {
    const database = await aDatabase();
    const { seen, run } = observer();
    const sizes: number[] = [];
    const [mill] = await planned(database, things(20), (one) =>
      one.reactiveTask({
        ...AT_ONCE,
        batch: { size: 10 },
        limits: { concurrency: 4 },
        handler: (tasks) => {
          sizes.push(tasks.length);
          return run(15, tasks.length);
        },
      }),
    );
    await mill?.tasks.resume('t');
    await until('all have run', () => seen.starts.length === 20 && seen.running === 0);
    expect(seen.most).toBe(4);
    expect(Math.max(...sizes)).toBeGreaterThan(1);
  });

  it('starts no more tasks than the rate in any window', async () => {
    const database = await aDatabase();
    const { seen, run } = observer();
    const rate = { limit: 10, per: '500ms', burst: 3 } as const;
    const [mill] = await planned(database, things(40), (one) =>
      one.reactiveTask({ ...AT_ONCE, limits: { rate }, handler: () => run(1) }),
    );
    await mill?.tasks.resume('t');
    await until('all have run', () => seen.starts.length === 40);
    const [first = 0] = seen.starts;
    const tookMs = (seen.starts.at(-1) ?? 0) - first;
    expect(tookMs).toBeGreaterThan(1_500);
  });

  it('gives the start of a task back that is skipped, since its handler was never called', async () => {
    const database = await aDatabase();
    const ran: unknown[] = [];
    let over = 0;
    const all = (): Thing[] => {
      over = Date.now() + 4_000;
      return [1, 2].map((_id) => ({ _id, until: new Date(_id === 1 ? over : over + 600_000) }));
    };
    const [mill] = await planned(
      database,
      all,
      (one) =>
        one.reactiveTask({
          ...AT_ONCE,
          filter: database.filters.notOver,
          limits: { rate: { limit: 1, per: '10m' } },
          handler: ({ docId }) => void ran.push(docId),
        }),
      1,
    );
    const skipped: unknown[] = [];
    mill?.on('task:skip', ({ task }) => skipped.push(task.sourceDocId));
    await until('the first document no longer matches', () => Date.now() > over + 100);
    await mill?.tasks.resume('t');
    await until('the second task has run', () => ran.length > 0);
    expect({ ran, skipped }).toEqual({ ran: [2], skipped: [1] });
    expect(await mill?.limits.get({ kind: 'task', name: 't' })).toMatchObject({ use: { startsInWindow: 1 } });
  });

  it('shares a limit with jobs, which leave tasks their turns', async () => {
    const { docs, mill: aMill } = await aDatabase();
    const { seen, run } = observer();
    const order: string[] = [];
    const mill = aMill(SLOTS);
    mill.limit('erp', { concurrency: 2 });
    mill.job('work', { limits: { shared: ['erp'] } }, () => {
      order.push('job');
      return run(5);
    });
    await mill.reactiveTask({
      ...AT_ONCE,
      limits: { shared: ['erp'] },
      handler: () => {
        order.push('task');
        return run(5);
      },
    });
    await mill.enqueueMany(Array.from({ length: 300 }, () => ({ name: 'work', data: {} })));
    await mill.start();
    await docs.insertMany(things(3));
    await until('all have run', () => seen.starts.length === 303 && seen.running === 0);
    expect(seen.most).toBe(2);
    expect(order.lastIndexOf('task')).toBeLessThan(295);
    expect(await mill.limits.get('erp')).toMatchObject({ kind: 'shared', use: { waiting: 0 } });
  });

  it('opens the breaker after failures, tries one task, and goes on', async () => {
    const database = await aDatabase();
    let isBroken = true;
    let calls = 0;
    const [mill] = await planned(
      database,
      things(6),
      (one) =>
        one.reactiveTask({
          ...AT_ONCE,
          concurrency: 1,
          breaker: { failures: 2, within: '1m', pause: '400ms' },
          retryPolicy: { type: 'fixed', interval: 10, maxAttempts: 50 },
          handler: () => {
            calls += 1;
            if (isBroken) throw new Error('the other side is down');
          },
        }),
      1,
    );
    await mill?.tasks.resume('t');
    const state = async () => (await mill?.limits.get({ kind: 'task', name: 't' }))?.breaker?.state;
    await until('the breaker is open', async () => (await state()) === 'open');
    const atOpening = calls;
    const [waiting] = (await mill?.tasks.find({ task: 't', status: 'pending' }))?.items ?? [];
    await until('a task says what it waits for', async () => {
      const reasons = await mill?.why({ kind: 'tasks', id: waiting?.id ?? '' });
      return reasons?.some(({ code, until: at }) => code === 'breaker' && at instanceof Date) === true;
    });
    await until('one was tried, in vain', () => calls > atOpening);
    isBroken = false;
    await until('all are completed', async () => (await database.count({ status: 'completed' })) === 6);
    await until('the breaker is closed', async () => (await state()) === 'closed');
    expect(calls - atOpening).toBeLessThan(12);
  });

  it('lists the limit with its use, changes it while it holds, and says what a task waits for', async () => {
    const database = await aDatabase();
    const hold = gate();
    let running = 0;
    const [mill] = await planned(
      database,
      things(5),
      (one) =>
        one.reactiveTask({
          ...AT_ONCE,
          limits: { concurrency: 1 },
          handler: async () => {
            running += 1;
            await hold.promise;
          },
        }),
      1,
    );
    const target = { kind: 'task', name: 't' } as const;
    await mill?.tasks.resume('t');
    await until('one runs', () => running === 1);
    expect(await mill?.limits.get(target)).toMatchObject({
      kind: 'task',
      limits: { concurrency: 1 },
      use: { running: 1, waiting: 4 },
      source: 'code',
    });
    const [waiting] = (await mill?.tasks.find({ task: 't', status: 'pending' }))?.items ?? [];
    expect(await mill?.why({ kind: 'tasks', id: waiting?.id ?? '' })).toEqual([
      { code: 'limit', text: 'It waits for the name "t", of which 1 run, the most in the cluster.' },
    ]);
    await mill?.limits.set(target, { concurrency: 3 });
    await until('three run', () => running === 3);
    expect((await mill?.limits.list())?.map(({ kind, source }) => [kind, source])).toEqual([['task', 'set']]);
    await mill?.limits.reset(target);
    expect(await mill?.limits.get(target)).toMatchObject({ limits: { concurrency: 1 }, source: 'code' });
    await expect(mill?.limits.set({ kind: 'task', name: 'tt' }, { concurrency: 1 })).rejects.toThrow(
      'there is no limit or reactive task of this name. Did you mean "t"?',
    );
    hold.open();
    await until('all are completed', async () => (await database.count({ status: 'completed' })) === 5);
  });

  it('claims nothing once the time of its permits has passed', async () => {
    const database = await aDatabase();
    const [mill] = await planned(
      database,
      things(2),
      (one) => one.reactiveTask({ ...AT_ONCE, handler: () => undefined }),
      1,
    );
    await mill?.stop();
    const [store, holder] = [database.store(), {}];
    await store.acquire(holder);
    const reactive = store.reactive as NonNullable<typeof store.reactive>;
    const found = (await reactive.planner.plans()).find(({ plan }) => plan.task === 't');
    const plans = new Map(found === undefined ? [] : [['t', found.plan]]);
    const tasks = reactive.tasks(() => plans);
    await tasks.resume('t');
    const claim = async (at: Date): Promise<number> => {
      const { jobs } = await tasks.claim({
        instance: { instanceId: 'me', life: '0123456789abcdef' },
        token: '0123456789abcdef.1',
        heartbeatMs: 10_000,
        total: 5,
        limits: new Map([['t', { max: 5, rank: 0, of: 1, notAfter: at }]]),
      });
      return jobs.length;
    };
    expect(await claim(new Date(Date.now() - 60_000))).toBe(0);
    expect(await claim(new Date(Date.now() + 60_000))).toBe(2);
    await store.release(holder);
  });

  it('refuses a shared limit that is not defined, and one that is called like a task', async () => {
    const { mill: aMill } = await aDatabase();
    const handler = () => undefined;
    const undefinedOne = aMill();
    await undefinedOne.reactiveTask({ ...AT_ONCE, limits: { shared: ['erp'] }, handler });
    await expect(undefinedOne.start()).rejects.toThrow(
      'reactiveTask("t"): the shared limit "erp" is not defined on this mill',
    );
    const likeTask = aMill();
    await likeTask.reactiveTask({ ...AT_ONCE, handler });
    likeTask.limit('t', { concurrency: 1 });
    await expect(likeTask.start()).rejects.toThrow('limit("t"): a task has this name');
    const late = aMill();
    late.on('error', () => undefined);
    await late.start();
    await expect(late.reactiveTask({ ...AT_ONCE, limits: { shared: ['erp'] }, handler })).rejects.toThrow(
      'the shared limit "erp" is not defined on this mill',
    );
  });

  it('frees what a dead instance held once its lease has ended', async () => {
    const { store, docs, mill: aMill } = await aDatabase();
    const outage = new Outage(store());
    const options = { leaseDuration: '1s', recoverStaleJobs: true } as const;
    const ran: string[] = [];
    const define = (mill: Tidemill, name: string) =>
      mill.reactiveTask({
        ...AT_ONCE,
        limits: { concurrency: 1 },
        handler: async ({ signal }) => {
          ran.push(name);
          if (name !== 'dying') return;
          await new Promise((resolve) => signal.addEventListener('abort', resolve));
          signal.throwIfAborted();
        },
      });
    const dying = onStore(outage.store, options);
    dying.on('error', () => undefined);
    await define(dying, 'dying');
    await dying.start();
    await docs.insertMany(things(2));
    await until('one runs', () => ran.length === 1);
    const other = aMill(options);
    await define(other, 'other');
    await other.start();
    outage.reach = 'down';
    const diedAt = performance.now();
    await until('the other runs both', () => ran.filter((name) => name === 'other').length === 2);
    expect(performance.now() - diedAt).toBeLessThan(1_000 + 5_000);
    outage.reach = 'up';
  });

  it('never runs more tasks of a key than its limit, and lets other keys go on', async () => {
    const database = await aDatabase();
    const seen = new Map<string, { running: number; most: number; ended: number }>();
    let running = 0;
    let most = 0;
    const all = things(30).map((thing, at) => ({
      ...thing,
      status: at < 20 ? 'flood' : `key-${String(at)}`,
    }));
    const [mill] = await planned(database, all, (one) =>
      one.reactiveTask<Thing>({
        ...AT_ONCE,
        limits: { perKey: { key: 'status', concurrency: 2 } },
        handler: async ({ watchedValues }) => {
          const key = String(watchedValues['status']);
          const of = seen.get(key) ?? { running: 0, most: 0, ended: 0 };
          seen.set(key, of);
          of.most = Math.max(of.most, (of.running += 1));
          most = Math.max(most, (running += 1));
          await new Promise((resolve) => setTimeout(resolve, 10));
          running -= 1;
          of.running -= 1;
          of.ended += 1;
        },
      }),
    );
    await mill?.tasks.resume('t');
    const ended = (): number => [...seen.values()].reduce((sum, of) => sum + of.ended, 0);
    await until('all have run', () => ended() === 30);
    expect(seen.get('flood')?.most).toBe(2);
    expect(most).toBeGreaterThan(2);
  });

  it('says of a task that waits for its key which one that is, and shows and changes the limit', async () => {
    const { docs, mill: aMill } = await aDatabase();
    const mill = aMill();
    const opened = gate();
    await mill.reactiveTask({
      ...AT_ONCE,
      limits: { perKey: { key: 'status', concurrency: 1 } },
      handler: () => opened.promise,
    });
    await mill.start();
    await docs.insertMany(things(3).map((thing) => ({ ...thing, status: 'acme' })));
    const target = { kind: 'task', name: 't' } as const;
    const pending = async () => (await mill.tasks.find({ task: 't', status: 'pending' })).items;
    await until('one runs, two wait', async () => {
      const [key] = await mill.limits.keys(target);
      return key?.running === 1 && key.due === 2;
    });
    expect(await mill.limits.keys(target)).toMatchObject([{ key: 'acme', running: 1, due: 2 }]);
    const [waiting] = await pending();
    expect(waiting?.limitKey).toBe('acme');
    await until('it waits for its key', async () => {
      const [reason] = await mill.why({ kind: 'tasks', id: waiting?.id ?? '' });
      return reason?.code === 'key' && reason.text.includes('key "acme"');
    });
    expect((await mill.limits.get(target))?.limits.perKey).toMatchObject({ concurrency: 1 });
    await mill.limits.set(target, { perKey: { concurrency: 2 } });
    await until('two run', async () => (await pending()).length === 1);
    opened.open();
    await until(
      'all have run',
      async () => (await mill.tasks.count({ task: 't', status: 'completed' })) === 3,
    );
  });

  it('frees the key of a dead instance once its lease has ended', async () => {
    const { store, docs, mill: aMill } = await aDatabase();
    const outage = new Outage(store());
    const options = { leaseDuration: '1s', recoverStaleJobs: true } as const;
    const ran: string[] = [];
    const define = (mill: Tidemill, name: string) =>
      mill.reactiveTask({
        ...AT_ONCE,
        limits: { perKey: { key: 'status', concurrency: 1 } },
        handler: async ({ signal }) => {
          ran.push(name);
          if (name !== 'dying') return;
          await new Promise((resolve) => signal.addEventListener('abort', resolve));
          signal.throwIfAborted();
        },
      });
    const dying = onStore(outage.store, options);
    dying.on('error', () => undefined);
    await define(dying, 'dying');
    await dying.start();
    await docs.insertMany(things(2).map((thing) => ({ ...thing, status: 'acme' })));
    await until('one runs', () => ran.length === 1);
    const other = aMill(options);
    await define(other, 'other');
    await other.start();
    outage.reach = 'down';
    await until('the other runs both', () => ran.filter((name) => name === 'other').length === 2);
    outage.reach = 'up';
  });
});
