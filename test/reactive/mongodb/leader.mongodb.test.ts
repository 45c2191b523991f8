import { describe, expect, it } from 'vitest';
import type { Tidemill, TidemillOptions } from '../../../src/index.js';
import { mongodb } from '../../../src/mongodb/index.js';
import { aMill, gate, until } from '../../support/mills.js';
import { freshUri, rawClient } from '../../support/stores.js';
import { spawnInstance } from '../instances.js';
import { collect, globalsOf, Handled, type Versioned } from '../mills.js';

/**
 * The lease of instances that are killed or frozen. Others have a longer one, which no pause of a busy machine ends.
 */
const LEASE_MS = 3_000;
const fast: Partial<TidemillOptions> = { pollInterval: { min: 10, max: 200 } };

async function aSync(
  uri: string,
  handled: Handled,
  options: Partial<TidemillOptions> = {},
  go: Promise<void> = Promise.resolve(),
): Promise<Tidemill> {
  const mill = aMill(mongodb({ uri }), { ...fast, ...options });
  await mill.reactiveTask<Versioned>({
    task: 'sync',
    collection: 'docs',
    debounce: 0,
    handler: async ({ docId, getDocument }) => {
      handled.note(docId, (await getDocument()).version);
      await go;
    },
  });
  return mill;
}

const insert = (client: ReturnType<typeof rawClient>, ...ids: number[]): Promise<unknown> =>
  client
    .db()
    .collection('docs')
    .insertMany(ids.map((_id) => ({ _id, version: 1 })) as never[]);

describe('leadership', () => {
  it('one of several instances leads, and every instance works', async () => {
    const uri = freshUri();
    const client = rawClient(uri);
    const handled = [new Handled(), new Handled(), new Handled()];
    const go = gate();
    const mills = await Promise.all(handled.map((one) => aSync(uri, one, {}, go.promise)));
    const gained = mills.map((mill) => collect(mill, 'leader:gained'));
    await Promise.all(mills.map((mill) => mill.start()));
    await until('somebody leads', () => gained.flat().length > 0);
    await insert(client, ...Array.from({ length: 200 }, (_, n) => n));
    await until('all work', () => handled.every(({ runs }) => runs.length > 0));
    go.open();
    await until('all were handled', () => handled.flatMap(({ runs }) => runs).length >= 200);
    expect(gained.flat()).toHaveLength(1);
    expect(mills.filter((mill) => mill.health().leader)).toHaveLength(1);
    expect(handled.flatMap(({ runs }) => runs)).toHaveLength(200);
  });

  it('another instance leads after the leader was killed, and needs no reconciliation', async () => {
    const uri = freshUri();
    const client = rawClient(uri);
    await using leader = spawnInstance({ uri, leaseMs: LEASE_MS });
    await until('its first look at everything is recorded', async () => {
      const state = await globalsOf(client).findOne({ _id: 'task:sync', 'state.done': { $gt: 0 } });
      return state !== null;
    });
    const handled = new Handled();
    const mill = await aSync(uri, handled, { leaseDuration: 8_000 });
    const gained = collect(mill, 'leader:gained');
    const reconciled = collect(mill, 'reconcile:start');
    await mill.start();
    expect(gained).toEqual([]);
    await leader.kill();
    await insert(client, 1, 2, 3);
    await until('what came after was handled', () => handled.runs.length >= 3);
    expect(gained).toMatchObject([{ term: 2 }]);
    // The resume point is enough: nothing is looked at again.
    expect(reconciled).toEqual([]);
  });

  it('another instance leads at once after the leader stops', async () => {
    const uri = freshUri();
    const client = rawClient(uri);
    const handled = new Handled();
    const long = { leaseDuration: '10m' };
    const [first, second] = [await aSync(uri, handled, long), await aSync(uri, handled, long)];
    const gained = collect(second, 'leader:gained');
    await first.start();
    await until('the first one leads', () => first.health().leader);
    await second.start();
    await first.stop();
    // This is much sooner than the end of such a lease, or its next renewal.
    await until('the second one leads', () => gained.length > 0);
    await insert(client, 1);
    await until('it plans', () => handled.times(1) === 1);
  });

  it('an instance that only plans leads at once after the leader stops', async () => {
    const uri = freshUri();
    const handled = new Handled();
    const long = { leaseDuration: '10m' };
    const [first, second] = [await aSync(uri, handled, long), await aSync(uri, handled, long)];
    await first.start();
    await until('the first one leads', () => first.health().leader);
    await second.start({ roles: ['plan'] });
    await first.stop();
    await until('the second one leads', () => second.health().leader);
  });

  it('a leader that was frozen writes no state when it resumes', async () => {
    const uri = freshUri();
    const client = rawClient(uri);
    await insert(client, ...Array.from({ length: 6_000 }, (_, n) => n));
    await using frozen = spawnInstance({ uri, leaseMs: LEASE_MS, rate: 1_000, roles: ['plan'] });
    await frozen.heard('reconcile:start');
    await until('a checkpoint is kept', async () => {
      const row = await globalsOf(client).findOne({ _id: 'checkpoint:.docs' });
      return row?.['checkpoint'] instanceof Object;
    });
    frozen.child.kill('SIGSTOP');
    await using heir = spawnInstance({ uri, leaseMs: 8_000, roles: ['plan'] });
    await heir.heard('leader:gained');
    await heir.heard('reconcile:complete');
    const owned = (): Promise<unknown> =>
      globalsOf(client)
        .find({ kind: { $in: ['task', 'checkpoint', 'planner'] } } as never)
        .project({ term: 1, 'state.done': 1, checkpoint: 1, life: 1 })
        .toArray();
    await until('the heir has written down the end', async () => {
      const row = await globalsOf(client).findOne({ _id: 'task:sync' });
      return (row?.['state'] as { done: number }).done === 1;
    });
    const before = await owned();
    frozen.child.kill('SIGCONT');
    await frozen.heard('leader:lost');
    await insert(client, 10_000);
    await until('the heir goes on planning', async () => {
      return (await client.db().collection('docs_tasks').countDocuments()) === 6_001;
    });
    expect(await owned()).toEqual(before);
    expect(frozen.events('reconcile:complete')).toEqual([]);
    expect(frozen.events('leader:gained')).toHaveLength(1);
  });

  it('a leader keeps its lead during a reconciliation longer than its lease', async () => {
    const uri = freshUri();
    const client = rawClient(uri);
    await insert(client, ...Array.from({ length: 5_000 }, (_, n) => n));
    const leaseDuration = 6_000;
    const [first, second] = [
      await aSync(uri, new Handled(), { leaseDuration, reactive: { reconcileRate: 700 } }),
      await aSync(uri, new Handled(), { leaseDuration }),
    ];
    const completed = collect(first, 'reconcile:complete');
    const [lost, gained] = [collect(first, 'leader:lost'), collect(second, 'leader:gained')];
    await first.start({ roles: ['plan'] });
    await until('the first one leads', () => first.health().leader);
    await second.start({ roles: ['plan'] });
    await until('it has ended', () => completed.length > 0);
    expect(lost).toEqual([]);
    expect(gained).toEqual([]);
    expect(completed).toMatchObject([{ processed: 5_000 }]);
  });
});

describe('roles of instances', () => {
  const planned = async (client: ReturnType<typeof rawClient>): Promise<number> =>
    client.db().collection('docs_tasks').countDocuments();

  it('an instance without the plan role never leads', async () => {
    const uri = freshUri();
    const client = rawClient(uri);
    const handled = new Handled();
    const worker = await aSync(uri, handled);
    const gained = collect(worker, 'leader:gained');
    await worker.start({ roles: ['work'] });
    await insert(client, 1);
    const planner = await aSync(uri, new Handled());
    await planner.start({ roles: ['plan'] });
    await until('the worker worked', () => handled.times(1) === 1);
    await planner.stop();
    await insert(client, 2);
    // Longer than it would take to lead: the lease of the one that left is over at once.
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    expect(gained).toEqual([]);
    expect(await planned(client)).toBe(1);
  });

  it('a planner runs no handler, and a worker does not lead', async () => {
    const uri = freshUri();
    const client = rawClient(uri);
    const [byPlanner, byWorker] = [new Handled(), new Handled()];
    const [planner, worker] = [await aSync(uri, byPlanner), await aSync(uri, byWorker)];
    await planner.start({ roles: ['plan'] });
    await insert(client, 1, 2, 3);
    await until('they are planned', async () => (await planned(client)) === 3);
    expect(byPlanner.runs).toEqual([]);
    await worker.start({ roles: ['work', 'maintain'] });
    await until('they are handled', () => byWorker.runs.length === 3);
    await client
      .db()
      .collection<Versioned>('docs')
      .updateMany({}, { $inc: { version: 1 } });
    await until('their changes are handled', () => byWorker.runs.length === 6);
    expect(byPlanner.runs).toEqual([]);
    expect(worker.health().leader).toBe(false);
    expect(planner.health().leader).toBe(true);
  });

  it('start rejects unknown or empty roles', async () => {
    const mill = aMill(mongodb({ uri: freshUri() }));
    await expect(mill.start({ roles: [] })).rejects.toThrow('roles');
    await expect(mill.start({ roles: ['lead' as never] })).rejects.toThrow('roles');
  });
});

describe('definitions added while instances run', () => {
  it('definitions added on the leader and on another instance are planned and run', async () => {
    const uri = freshUri();
    const client = rawClient(uri);
    await client
      .db()
      .collection('late')
      .insertOne({ _id: 1 } as never);
    const leader = await aSync(uri, new Handled());
    const other = aMill(mongodb({ uri }), fast);
    await leader.start();
    await until('it leads', () => leader.health().leader);
    await other.start();
    const runs: string[] = [];
    await other.reactiveTask({
      task: 'late',
      collection: 'late',
      debounce: 0,
      handler: ({ docId }) => void runs.push(`other ${String(docId)}`),
    });
    await until('what was there is handled', () => runs.length === 1);
    await leader.reactiveTask({
      task: 'later',
      collection: 'late',
      debounce: 0,
      handler: ({ docId }) => void runs.push(`leader ${String(docId)}`),
    });
    await until('by the second one, too', () => runs.length === 2);
    await client
      .db()
      .collection('late')
      .insertOne({ _id: 2 } as never);
    await until('what comes is handled by both', () => runs.length === 4);
    expect(runs.sort()).toEqual(['leader 1', 'leader 2', 'other 1', 'other 2']);
    expect(leader.health().leader).toBe(true);
  });

  it('a definition added to an instance without any makes it lead and run', async () => {
    const uri = freshUri();
    const mill = aMill(mongodb({ uri }), fast);
    await mill.start();
    const runs: unknown[] = [];
    await mill.reactiveTask({
      task: 'first',
      collection: 'docs',
      debounce: 0,
      handler: ({ docId }) => void runs.push(docId),
    });
    await insert(rawClient(uri), 1);
    await until('it is handled', () => runs.length === 1);
  });
});
