import { AsyncLocalStorage } from 'node:async_hooks';
import { expect, it } from 'vitest';
import type { Tidemill } from '../../../src/index.js';
import type { Store, WatchHandlers } from '../../../src/store/port.js';
import { aMill, gate, rarely, until } from '../../support/mills.js';
import { keepLines } from '../mills.js';
import { statusesOf, withProbeTask } from '../probes.js';
import { eachPlanner, type Thing } from './test-databases.js';

const AT_ONCE = { collection: 'things', debounce: 0 } as const;
const ONCE = { type: 'fixed', interval: 1, maxAttempts: 1 } as const;
const rows = (count: number, from = 0): Thing[] =>
  Array.from({ length: count }, (_, at) => ({ _id: from + at }));

eachPlanner('handlers that start themselves again', (aDatabase) => {
  it('warns once about a handler that writes what it watches, with the fields', async () => {
    const { docs, mill: aMill } = await aDatabase();
    const { logger, lines } = keepLines();
    const mill = aMill({ logger });
    const warnings = (): typeof lines => lines.filter(({ text }) => text.includes('write what it watches'));
    let ran = 0;
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      watchProjection: { n: 1, status: 1 },
      handler: async () => {
        ran += 1;
        if (ran < 15) await docs.updateOne({ _id: 1 }, { $set: { n: ran, other: ran } });
      },
    });
    await mill.start();
    await docs.insertOne({ _id: 1, n: 0, status: 'same' });
    await until('it has run again and again', () => ran === 15);
    expect(warnings()).toEqual([
      {
        level: 'warn',
        fields: { task: 't', docId: 1 },
        text: expect.stringMatching(/^reactive task "t" ran 10 times .+ \(n\)\?$/u) as string,
      },
    ]);
  });
});

eachPlanner('concurrency of tasks', (aDatabase) => {
  it.each([
    ['five by default', undefined, undefined, 5],
    ['reactive.concurrency', 3, undefined, 3],
    ['more than the tasks of one claim', 30, undefined, 30],
    ['the concurrency of the task', 10, 2, 2],
    ['no more than the instance allows, whatever the task says', 4, 100, 4],
  ])('the number of concurrent tasks is %s', async (_what, concurrency, ofTask, expected) => {
    const { docs, mill: aMill } = await aDatabase();
    const mill = aMill(concurrency === undefined ? {} : { reactive: { concurrency } });
    const go = gate();
    let running = 0;
    let most = 0;
    let ended = 0;
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      ...(ofTask === undefined ? {} : { concurrency: ofTask }),
      handler: async () => {
        running += 1;
        most = Math.max(most, running);
        if (ended === 0) await go.promise;
        await new Promise((resolve) => setTimeout(resolve, 2));
        running -= 1;
        ended += 1;
      },
    });
    await mill.start();
    await docs.insertMany(rows(40));
    await until('all slots are taken', () => running === expected);
    go.open();
    await until('all have run', () => ended === 40);
    expect(most).toBe(expected);
  });

  it('the concurrency of the mill limits jobs and tasks together', async () => {
    const { docs, mill: aMill } = await aDatabase();
    const mill = aMill({ concurrency: 3, reactive: { concurrency: 10 } });
    let [running, most, tasks] = [0, 0, 0];
    const work = async (): Promise<void> => {
      most = Math.max(most, (running += 1));
      await new Promise((resolve) => setTimeout(resolve, 5));
      running -= 1;
    };
    const job = mill.job('job', { concurrency: 10 }, work);
    await mill.reactiveTask({ ...AT_ONCE, task: 't', handler: () => work().then(() => (tasks += 1)) });
    await docs.insertMany(rows(30));
    const asked = await job.enqueueMany(Array.from({ length: 30 }, (_, n) => ({ data: n })));
    await mill.start();
    await Promise.all(asked.map(({ id }) => mill.jobs.result(id)));
    await until('all tasks have run', () => tasks === 30);
    expect(most).toBe(3);
  });

  it('a task with its own concurrency leaves the other slots to others', async () => {
    const { docs, count, mill: aMill } = await aDatabase();
    const mill = aMill();
    const go = gate();
    const running = { narrow: 0, wide: 0 };
    for (const task of ['narrow', 'wide'] as const) {
      await mill.reactiveTask({
        ...AT_ONCE,
        task,
        ...(task === 'narrow' ? { concurrency: 1 } : {}),
        handler: async () => {
          running[task] += 1;
          await go.promise;
        },
      });
    }
    // The tasks are planned one after the other: the first would take all slots before the second is there.
    await mill.start({ roles: ['plan'] });
    await docs.insertMany(rows(10));
    await until('all are planned', async () => (await count({})) === 20);
    await mill.stop();
    await mill.start();
    await until('all slots are taken', () => running.narrow + running.wide === 5);
    expect(running).toEqual({ narrow: 1, wide: 4 });
    go.open();
    await until('all have run', () => running.narrow + running.wide === 20);
  });
});

eachPlanner('reactive.filter', (aDatabase) => {
  it('reactive.filter keeps a task pending until it lets it run', async () => {
    const { docs, mill: aMill, planned } = await aDatabase();
    let open = false;
    const mill = aMill({
      pollInterval: { min: '1s', max: '1s' },
      reactive: { filter: ({ task }) => task !== 'nightly' || open },
    });
    const ran: string[] = [];
    for (const task of ['nightly', 'daily'])
      await mill.reactiveTask({ ...AT_ONCE, task, handler: () => ran.push(task) });
    await withProbeTask(mill);
    await mill.start();
    await docs.insertMany(rows(5));
    await until('the other ran', () => ran.length === 5);
    await planned();
    expect(ran).not.toContain('nightly');
    const pending = await mill.getReactiveTasks({ task: 'nightly', status: 'pending' });
    expect(pending.items.map(({ attempts }) => attempts)).toEqual([0, 0, 0, 0, 0]);
    // Nothing but the filter changes.
    open = true;
    await until('it ran', () => ran.length === 10);
  });

  it('reactive.filter is asked again even while other work never ends', async () => {
    const { docs, others, mill: aMill } = await aDatabase();
    let open = false;
    const mill = aMill({ reactive: { filter: ({ task }) => task !== 'shut' || open } });
    let flood = 0;
    let shut = 0;
    let over = false;
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 'flood',
      handler: async ({ docId }) => {
        flood += 1;
        await new Promise((resolve) => setTimeout(resolve, 5));
        // Keeps itself busy: each run makes the next one due.
        if (!over) await docs.updateOne({ _id: docId as number }, { $set: { n: flood } });
      },
    });
    await mill.reactiveTask({ task: 'shut', collection: 'others', debounce: 0, handler: () => (shut += 1) });
    await mill.start();
    await others.insertOne({ _id: 1 });
    await docs.insertMany(rows(50));
    await until('the flood is on', () => flood > 300);
    expect(shut).toBe(0);
    open = true;
    await until('it ran in spite of the flood', () => shut === 1);
    const before = flood;
    await until('the flood is still on', () => flood > before);
    over = true;
  });

  it('a reactive.filter that throws refuses the task, and the error is reported', async () => {
    const { docs, mill: aMill, planned } = await aDatabase();
    let broken = true;
    const mill = aMill({
      reactive: {
        filter: ({ task }) => {
          if (broken && task === 't') throw new Error('broken filter');
          return true;
        },
      },
    });
    const errors: string[] = [];
    mill.on('error', ({ error, where }) => errors.push(`${where}: ${error.message}`));
    let runs = 0;
    await mill.reactiveTask({ ...AT_ONCE, task: 't', handler: () => (runs += 1) });
    await withProbeTask(mill);
    await mill.start();
    await docs.insertOne({ _id: 1 });
    await planned();
    await until('it is heard of', () => errors.includes('reactive.filter: broken filter'));
    expect(runs).toBe(0);
    broken = false;
    await until('it ran', () => runs === 1);
  });
});

eachPlanner('reactive.caller', (aDatabase) => {
  it('reactive.caller wraps each run', async () => {
    const { docs, mill: aMill, reaches } = await aDatabase();
    const storage = new AsyncLocalStorage<string>();
    const seen: string[] = [];
    const mill = aMill({
      reactive: {
        caller: async (run) => {
          seen.push('before');
          await storage.run('correlated', run);
          seen.push('after');
        },
      },
    });
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      handler: async ({ getDocument }) => {
        await getDocument();
        seen.push(storage.getStore() ?? 'nothing');
      },
    });
    await mill.start();
    await docs.insertOne({ _id: 1 });
    await reaches(mill, 't', 1, 'completed');
    expect(seen).toEqual(['before', 'correlated', 'after']);
  });

  it.each([
    ['before the run', false, 0],
    ['after the run', true, 1],
  ])('a reactive.caller that throws %s fails the attempt', async (_what, call, expected) => {
    const { docs, mill: aMill, reaches } = await aDatabase();
    let runs = 0;
    const mill = aMill({
      reactive: {
        caller: async (run) => {
          if (call) await run();
          throw new Error('the caller');
        },
      },
    });
    await mill.reactiveTask({ ...AT_ONCE, task: 't', retryPolicy: ONCE, handler: () => (runs += 1) });
    await mill.start();
    await docs.insertOne({ _id: 1 });
    expect((await reaches(mill, 't', 1, 'failed')).lastError).toBe('the caller');
    expect(runs).toBe(expected);
  });

  it('reactive.caller sees what the handler throws, and a skipped document stays skipped', async () => {
    const { docs, mill: aMill, reaches } = await aDatabase();
    const caught: string[] = [];
    const mill = aMill({
      reactive: {
        caller: async (run) => {
          try {
            await run();
          } catch (error) {
            caught.push((error as Error).name);
            throw error;
          }
        },
      },
    });
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      handler: async ({ getDocument }) => {
        await docs.deleteOne({ _id: 1 });
        await getDocument();
      },
    });
    await mill.start();
    await docs.insertOne({ _id: 1 });
    const task = await reaches(mill, 't', 1, 'completed');
    // Twice, if the first reconciliation visited the document while its task ran.
    expect(new Set(statusesOf(task))).toEqual(new Set(['skipped']));
    expect(new Set(caught)).toEqual(new Set(['TaskConditionFailedError']));
  });
});

eachPlanner('fairness between tasks', (aDatabase) => {
  it.each([
    ['of the same collection', 'things', 'docs'],
    ['of another collection', 'others', 'others'],
  ] as const)('a flood of one task does not delay another one %s', async (_what, collection, where) => {
    const database = await aDatabase();
    const mill = database.mill();
    const planned = gate();
    const FLOOD = 1_500;
    let flood = 0;
    let rare = 0;
    let floodWhenDone = Infinity;
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 'flood',
      filter: { status: 'flood' },
      handler: async () => {
        flood += 1;
        if (flood > 100) await planned.promise;
        await new Promise((resolve) => setTimeout(resolve, 5));
      },
    });
    await mill.reactiveTask({
      task: 'rare',
      collection,
      filter: { status: 'rare' },
      debounce: 0,
      handler: () => {
        rare += 1;
        if (rare === 20) floodWhenDone = flood;
      },
    });
    await mill.start();
    await database.docs.insertMany(rows(FLOOD).map((row) => ({ ...row, status: 'flood' })));
    await until('the flood runs', () => flood > 100);
    await database[where].insertMany(rows(20, 10_000).map((row) => ({ ...row, status: 'rare' })));
    // However long planning takes, the flood must not be over before that.
    await until('the rare ones are planned', async () => (await mill.tasks.count({ task: 'rare' })) === 20);
    planned.open();
    await until('the rare ones ran', () => rare === 20);
    expect(floodWhenDone).toBeLessThan(FLOOD * 0.8);
  });
});

eachPlanner('wake-ups of workers that do not plan', (aDatabase) => {
  it('a worker is woken when another instance has planned a task', async () => {
    const { docs, mill: aMill } = await aDatabase();
    const [planner, worker] = [aMill(), aMill({ pollInterval: rarely })];
    const seen = new Set<unknown>();
    for (const mill of [planner, worker])
      await mill.reactiveTask({ ...AT_ONCE, task: 't', handler: ({ docId }) => seen.add(docId) });
    await planner.start({ roles: ['plan', 'maintain'] });
    await worker.start({ roles: ['work'] });
    for (const { _id } of rows(10)) {
      await docs.insertOne({ _id });
      await until('it ran', () => seen.has(_id));
    }
  });

  it("a worker is woken for tasks planned before the leader's wake-up channel was open", async () => {
    const { docs, store, mill: aMillOfDatabase, count } = await aDatabase();
    const channel = gate();
    const planner = aMill(opensLate(store(), channel.promise));
    const worker = aMillOfDatabase({ pollInterval: rarely });
    const seen = new Set<unknown>();
    for (const mill of [planner, worker])
      await mill.reactiveTask({ ...AT_ONCE, task: 't', handler: ({ docId }) => seen.add(docId) });
    await planner.start({ roles: ['plan', 'maintain'] });
    await until('it leads', async () => (await planner.instances()).some(({ leader }) => leader));
    await worker.start({ roles: ['work'] });
    // The worker's first look may find some of them; only the bell announces the last ones.
    for (const thing of rows(5)) {
      await docs.insertOne(thing);
      await until('it is planned', async () => (await count({ task: 't' })) > thing._id);
    }
    channel.open();
    await until('all have run', () => seen.size === 5);
  });

  it('a worker that rarely polls runs its tasks as soon as its definition is in force', async () => {
    const { docs, mill: aMill } = await aDatabase();
    const seen = new Set<unknown>();
    const handler = ({ docId }: { readonly docId: unknown }): void => void seen.add(docId);
    const define = (mill: Tidemill, handlerVersion: number, status: string): unknown =>
      mill.reactiveTask({
        ...AT_ONCE,
        task: 't',
        evolution: { handlerVersion },
        filter: { status },
        handler,
      });
    const newer = aMill({ leaseDuration: '1s' });
    await define(newer, 2, 'new');
    await newer.start();
    await docs.insertOne({ _id: 1, status: 'new' });
    await until('the newer definition is in force', () => seen.has(1));
    const older = aMill({ pollInterval: rarely });
    await define(older, 1, 'old');
    await older.start({ roles: ['work'] });
    const planner = aMill({ leaseDuration: '1s' });
    await planner.reactiveTask({ ...AT_ONCE, task: 'another', handler: () => undefined });
    await planner.start({ roles: ['plan', 'maintain'] });
    await docs.insertOne({ _id: 2, status: 'old' });
    await newer.stop();
    await until('the older one runs it', () => seen.has(2));
  });
});

/** A store whose wake-up channel opens when told. */
function opensLate(store: Store, mayOpen: Promise<void>): Store {
  const watch = store.watch.bind(store);
  return Object.assign(store, {
    watch: async (handlers: WatchHandlers) => {
      await mayOpen;
      return watch(handlers);
    },
  });
}
