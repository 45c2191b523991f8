/**
 * Tests of reactive tasks that hold on every store whose data can be watched: each database is the database of one test.
 */
import { describe } from 'vitest';
import type { TaskStatus, Tidemill, TidemillOptions } from '../../../src/index.js';
import type { Store } from '../../../src/store/port.js';
import type { Checkpoint, TaskState } from '../../../src/store/reactive/reactive.js';
import { runsOn } from '../../support/embedded-suites.js';
import { aMill } from '../../support/mills.js';
import { useEmbedded } from '../../support/stores.js';
import { plannedUpTo, reaches } from '../probes.js';
import { memoryDatabase } from './memory-database.js';
import { mongodbDatabase } from './mongodb-database.js';
import { embeddedDatabase, postgresDatabase } from './sql-database.js';

/** What the watched rows and documents may have. */
export interface Thing {
  readonly _id: number;
  readonly n?: number | null;
  readonly other?: number | null;
  readonly status?: string | null;
  readonly until?: Date | null;
  readonly info?: unknown;
}

export interface Things {
  insertOne(thing: Thing): Promise<unknown>;
  insertMany(things: readonly Thing[]): Promise<unknown>;
  updateOne(which: { readonly _id: number }, change: { readonly $set: Partial<Thing> }): Promise<unknown>;
  deleteOne(which: { readonly _id: number }): Promise<unknown>;
}

/** A stored task by the names of its fields in the documentation, with internal fields of the stores. */
export type StoredTask = Record<string, unknown> & { readonly status: TaskStatus };

/** What differs between stores. */
export interface Database {
  /** The collections `things` and `others`. */
  readonly docs: Things;
  readonly others: Things;
  readonly store: () => Store;
  /** What the planner calls `things`. */
  readonly sourceName: string;
  /** Where another process finds the store, see store-at.ts; absent if none can. */
  readonly address?: string;
  readonly probe: (id: string) => Promise<unknown>;
  /** The existing ids, in order. */
  readonly ids: (collection: 'things' | 'others') => Promise<number[]>;
  /** The error of a driver whose transaction conflicts with another; absent if such a transaction is not retried. */
  readonly conflict?: () => Error;
  /** Passes a driver's handle on which no transaction was begun. */
  readonly bare?: (work: (handle: unknown) => Promise<void>) => Promise<void>;
  /** Ends what a dead process left open; the MongoDB server does so only after a minute. */
  readonly endSession?: (session: string) => Promise<unknown>;
  readonly tasks: () => Promise<readonly StoredTask[]>;
  /** How many changes of the thing `1`, or on MongoDB of any, the resume point has not passed. */
  readonly unplanned?: () => Promise<number>;
  readonly putTasks: (tasks: readonly StoredTask[]) => Promise<unknown>;
  readonly deleteTasks: (task: string, ids: readonly number[]) => Promise<unknown>;
  readonly amendTasks: (task: string, fields: Readonly<Record<string, Date>>) => Promise<unknown>;
  /**
   * A filter of tasks on `things`, and a way to make such tasks impossible to prepare, which returns how to undo that.
   */
  readonly fragile: { readonly filter: object; readonly spoil: () => Promise<() => Promise<unknown>> };
  /** Filters that each store expresses in its own way. */
  readonly filters: {
    /** The time in `until` has not come, or has. */
    readonly notOver: object;
    readonly over: object;
    /** Fails on documents whose `other` is 0. */
    readonly failing: object;
  };
}

export interface TestDatabase extends Omit<Database, 'probe' | 'sourceName'> {
  /** A new instance. */
  readonly mill: (options?: Partial<TidemillOptions>) => Tidemill;
  /** The stored task of one document, as it is. */
  readonly raw: (task: string, id: unknown) => Promise<StoredTask | undefined>;
  readonly count: (which: Partial<StoredTask>) => Promise<number>;
  /** Makes every task of this name due long ago. */
  readonly makeDue: (task: string) => Promise<unknown>;
  /** Waits until a task is in a state. */
  readonly reaches: typeof reaches;
  /** The tasks that are held back in the whole cluster. */
  readonly paused: () => Promise<ReadonlySet<string>>;
  /** How far a pass over `things` has come. */
  readonly checkpoint: () => Promise<Checkpoint | undefined>;
  /** As if a leader that is gone had cleaned up after so many tasks of this name, long after its time had come. */
  readonly begunCleanup: (task: string, count: number) => Promise<unknown>;
  /** How many instances are registered. */
  readonly lives: () => Promise<number>;
  /** What the cluster knows of a task. */
  readonly state: (task: string) => Promise<TaskState | undefined>;
  /** Waits until the planner has seen everything that was written before. */
  readonly planned: () => Promise<void>;
}

async function open(made: () => Promise<Database>): Promise<TestDatabase> {
  const database = await made();
  const { tasks, store, probe, amendTasks } = database;
  const matches = (task: StoredTask, which: Partial<StoredTask>): boolean =>
    Object.entries(which).every(([field, value]) => task[field] === value);
  const ask = async <T>(
    question: (reactive: NonNullable<Store['reactive']>, eye: Store) => Promise<T>,
  ): Promise<T> => {
    const [eye, holder] = [store(), {}];
    await eye.acquire(holder);
    try {
      return await question(eye.reactive as NonNullable<Store['reactive']>, eye);
    } finally {
      await eye.release(holder);
    }
  };
  return {
    ...database,
    mill: (options) => aMill(store(), options),
    raw: async (task, id) => (await tasks()).find((one) => matches(one, { task, sourceDocId: id })),
    count: async (which) => (await tasks()).filter((one) => matches(one, which)).length,
    makeDue: (task) => amendTasks(task, { scheduledAt: new Date(0) }),
    reaches,
    paused: () => ask(async (reactive) => (await reactive.tasks(() => new Map()).peek([])).cluster.paused),
    checkpoint: () => ask((reactive) => reactive.planner.checkpoint({ collection: database.sourceName })),
    begunCleanup: (task, count) =>
      ask(async ({ planner, planning }, eye) => {
        const { leader } = await eye.instances.list();
        const published = (await planner.plans()).find(({ plan }) => plan.task === task);
        if (leader === undefined || published === undefined) throw new Error(`${task} was never planned`);
        const { after } = await planning.known(published.plan, undefined, count);
        if (after === undefined) throw new Error(`${task} has fewer tasks`);
        const term = { life: leader.life ?? '', term: leader.term };
        return planner.saveState(term, task, { cleanedUpTo: after, lastCleanedAt: new Date(0) });
      }),
    lives: () => ask(async (_reactive, eye) => (await eye.instances.list()).instances.length),
    state: (task) =>
      ask(async (reactive) => (await reactive.planner.states()).find((one) => one.task === task)),
    planned: plannedUpTo({
      write: probe,
      isPlanned: async (id) =>
        (await tasks()).some((one) => matches(one, { task: 'probe', sourceDocId: id })),
    }),
  };
}

type Facts = (database: () => Promise<TestDatabase>) => void;

/** Runs the same tests on every store whose data can be watched; on the embedded one only if they concern it. */
export function eachDatabase(what: string, facts: Facts): void {
  eachPlanner(what, facts);
  if (!runsOn('embedded', what)) return;
  describe(`${what} (embedded)`, () => {
    useEmbedded();
    facts(() => open(embeddedDatabase));
  });
}

/** Once for each way of planning: for tests of several instances, where the embedded store only repeats PostgreSQL. */
export function eachPlanner(what: string, facts: Facts): void {
  eachServedDatabase(what, facts);
  describe(`${what} (memory)`, () => facts(() => open(memoryDatabase)));
}

/** Only on stores that several processes can use. */
export function eachServedDatabase(what: string, facts: Facts): void {
  describe(`${what} (mongodb)`, () => facts(() => open(mongodbDatabase)));
  describe(`${what} (postgres)`, () => facts(() => open(postgresDatabase)));
}
