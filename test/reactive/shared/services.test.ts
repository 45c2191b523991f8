import { expect, it } from 'vitest';
import type { ReactiveTaskDefinition, Tidemill } from '../../../src/index.js';
import { until } from '../../support/mills.js';
import { startedUp, withProbeTask } from '../probes.js';
import { eachPlanner, type TestDatabase } from './test-databases.js';

const FAST = { pollInterval: { min: 10, max: 1_000 } } as const;

/** Which tasks ran for which documents, on any instance. */
class Ledger {
  readonly runs: string[] = [];
  readonly errors: Error[] = [];
  readonly #database: TestDatabase;

  constructor(database: TestDatabase) {
    this.#database = database;
  }

  mill(): Tidemill {
    const mill = this.#database.mill(FAST);
    mill.on('error', ({ error }) => this.errors.push(error));
    return mill;
  }

  define(
    mill: Tidemill,
    task: string,
    definition: Partial<ReactiveTaskDefinition> & { collection: string },
  ): Promise<void> {
    const handler = ({ docId }: { docId: unknown }): unknown => this.runs.push(`${task} ${String(docId)}`);
    return mill.reactiveTask({ debounce: 0, ...definition, task, handler });
  }

  times(task: string, id: number): number {
    return this.runs.filter((run) => run === `${task} ${String(id)}`).length;
  }

  async ran(task: string, id: number, times = 1): Promise<void> {
    await until(`${task} ran ${String(times)} times for ${String(id)}`, () => this.times(task, id) >= times);
    expect(this.times(task, id)).toBe(times);
  }

  /** Everything that was written before is planned and has run. */
  async quiet(): Promise<void> {
    const { planned, tasks } = this.#database;
    await planned();
    await until('nothing is in flight', async () =>
      (await tasks()).every(({ status }) => ['completed', 'failed'].includes(status)),
    );
  }
}

const leads = (mill: Tidemill): Promise<unknown> => until('it leads', () => mill.health().leader);

eachPlanner('several tasks on one collection', (aDatabase) => {
  it('plans each of several tasks on one collection by its own filter and projection', async () => {
    const database = await aDatabase();
    const ledger = new Ledger(database);
    const mill = ledger.mill();
    const collection = 'things';
    await ledger.define(mill, 'paid', {
      collection,
      filter: { status: 'paid' },
      watchProjection: { status: 1 },
    });
    await ledger.define(mill, 'total', { collection, watchProjection: { n: 1 } });
    await ledger.define(mill, 'large', { collection, filter: { n: { $gt: 100 } } });
    await withProbeTask(mill);
    await startedUp(mill, 'large');
    await database.docs.insertOne({ _id: 1, status: 'new', n: 1 });
    await ledger.ran('total', 1);
    await ledger.quiet();
    await database.docs.updateOne({ _id: 1 }, { $set: { status: 'paid' } });
    await ledger.ran('paid', 1);
    await ledger.quiet();
    await database.docs.updateOne({ _id: 1 }, { $set: { n: 200 } });
    await Promise.all([ledger.ran('total', 1, 2), ledger.ran('large', 1)]);
    await ledger.quiet();
    expect(['paid', 'total', 'large'].map((task) => ledger.times(task, 1))).toEqual([1, 2, 1]);
    expect(await database.count({ sourceDocId: 1 })).toBe(3);
  });

  it('a task that cannot be planned at all does not hold up others on the same collection', async () => {
    const database = await aDatabase();
    const ledger = new Ledger(database);
    const mill = ledger.mill();
    await ledger.define(mill, 'bad', { collection: 'things', filter: database.filters.failing });
    await ledger.define(mill, 'good', { collection: 'things' });
    await withProbeTask(mill);
    await startedUp(mill, 'bad');
    const rows = Array.from({ length: 20 }, (_, _id) => ({ _id, other: 0 }));
    await database.docs.insertMany(rows);
    await Promise.all(rows.map(({ _id }) => ledger.ran('good', _id)));
    await ledger.quiet();
    expect(await database.count({ task: 'bad', status: 'failed' })).toBe(20);
    expect(ledger.runs.some((run) => run.startsWith('bad'))).toBe(false);
  });
});

eachPlanner('two services with different tasks on one database', (aDatabase) => {
  it('two services share the planner, and neither misses a change, whichever leads', async () => {
    const database = await aDatabase();
    const ledger = new Ledger(database);
    const service = async (task: string, collection: string): Promise<Tidemill> => {
      const mill = ledger.mill();
      void ledger.define(mill, task, { collection, filter: { status: 'go' }, watchProjection: { n: 1 } });
      await mill.start();
      return mill;
    };
    const write = async (_id: number): Promise<void> => {
      await database.docs.insertOne({ _id, status: 'go', n: 1 });
      await database.others.insertOne({ _id, status: 'go', n: 1 });
    };
    const [FIRST_LEADS, SECOND_LEADS, NOBODY_LEADS] = [1, 2, 3];
    const first = await service('a', 'things');
    await leads(first);
    let second = await service('b', 'others');
    await write(FIRST_LEADS);
    await Promise.all([ledger.ran('a', FIRST_LEADS), ledger.ran('b', FIRST_LEADS)]);
    expect(second.health().leader).toBe(false);
    await first.stop();
    await leads(second);
    // The first service is away: the other one plans what it missed, and its tasks wait.
    await write(SECOND_LEADS);
    await ledger.ran('b', SECOND_LEADS);
    await until('planned for the absent', async () => (await database.raw('a', SECOND_LEADS)) !== undefined);
    const again = await service('a', 'things');
    await ledger.ran('a', SECOND_LEADS);
    // Both are away for a while; then the other one comes first.
    await Promise.all([again.stop(), second.stop()]);
    await write(NOBODY_LEADS);
    await database.docs.updateOne({ _id: FIRST_LEADS }, { $set: { n: 2 } });
    second = await service('b', 'others');
    await leads(second);
    await ledger.ran('b', NOBODY_LEADS);
    await service('a', 'things');
    await ledger.ran('a', NOBODY_LEADS);
    await ledger.ran('a', FIRST_LEADS, 2);
    expect(ledger.times('b', FIRST_LEADS)).toBe(1);
    expect(ledger.errors).toEqual([]);
  });

  it('a dedicated planner serves workers that never plan, also two on one collection', async () => {
    const database = await aDatabase();
    const ledger = new Ledger(database);
    const [planner, worker, other] = [ledger.mill(), ledger.mill(), ledger.mill()];
    void ledger.define(planner, 'p', { collection: 'others' });
    await planner.start({ roles: ['plan', 'maintain'] });
    void ledger.define(worker, 'a', { collection: 'things', filter: { n: 1 } });
    await worker.start({ roles: ['work'] });
    void ledger.define(other, 'b', { collection: 'things', filter: { other: 1 } });
    await other.start({ roles: ['work'] });
    await database.docs.insertMany([
      { _id: 1, n: 1 },
      { _id: 2, other: 1 },
      { _id: 3, n: 1, other: 1 },
    ]);
    await Promise.all([ledger.ran('a', 1), ledger.ran('b', 2), ledger.ran('a', 3), ledger.ran('b', 3)]);
    expect([worker, other, planner].map((mill) => mill.health().leader)).toEqual([false, false, true]);
    expect(await database.count({})).toBe(4);
  });
});
