import { OptionError } from '../../../src/core/errors.js';
import { memory, type MemoryStore, type MemoryTransaction } from '../../../src/memory/index.js';
import { newTaskRow, type TaskRow } from '../../../src/memory/reactive/tasks/row.js';
import type { Database, StoredTask, Thing, Things } from './test-databases.js';

function things(store: MemoryStore, name: string): Things {
  const collection = store.collection<Thing>(name);
  const done = <T>(write: () => T): Promise<T> => Promise.resolve().then(write);
  return {
    insertOne: (thing) => done(() => collection.insert(thing)),
    insertMany: (all) => done(() => all.map((thing) => collection.insert(thing))),
    updateOne: ({ _id }, { $set }) => done(() => collection.update(_id, { ...$set })),
    deleteOne: ({ _id }) => done(() => collection.delete(_id)),
  };
}

/** A row by the names that the documentation uses; absent values are left out, as in a database. */
const stored = (row: TaskRow): StoredTask =>
  Object.fromEntries(
    Object.entries(row).filter(
      ([field, value]) => value !== undefined && (value !== false || field === 'matched'),
    ),
  ) as unknown as StoredTask;

/** The store of the current test: its transactions do not say which store they belong to. */
let current: MemoryStore | undefined;

export const insertOther = (transaction: MemoryTransaction, _id: number): void =>
  void current?.collection('others').insert({ _id }, { transaction });

export async function memoryDatabase(): Promise<Database> {
  const store = memory();
  current = store;
  await store.loadParts();
  const { rows } = store.reactive.opened.table;
  const of = (task: string): TaskRow[] => [...rows.values()].filter((row) => row.task === task);
  const done = (write: () => unknown): Promise<unknown> => Promise.resolve().then(write);
  return {
    store: () => store,
    sourceName: 'things',
    docs: things(store, 'things'),
    others: things(store, 'others'),
    probe: (id) => done(() => store.collection('probes').insert({ _id: id })),
    ids: (collection) =>
      Promise.resolve(
        store
          .collection<Thing>(collection)
          .all()
          .map(({ _id }) => _id)
          .sort((a, b) => a - b),
      ),
    tasks: () => Promise.resolve([...rows.values()].map(stored)),
    putTasks: (tasks) =>
      done(() => {
        for (const task of tasks) {
          const row = newTaskRow('things', String(task['task']), task['sourceDocId'], new Date());
          rows.set(row.key, Object.assign(row, task));
        }
      }),
    deleteTasks: (task, ids) =>
      done(() => {
        for (const row of of(task)) if (ids.includes(Number(row.sourceDocId))) rows.delete(row.key);
      }),
    amendTasks: (task, fields) => done(() => of(task).forEach((row) => Object.assign(row, fields))),
    fragile: {
      filter: { status: 'go' },
      spoil: () => {
        const { reactive } = store;
        const prepare = reactive.prepare.bind(reactive);
        reactive.prepare = (plans) =>
          plans.some(({ task }) => task === 'theirs')
            ? Promise.reject(new OptionError('not for this leader'))
            : prepare(plans);
        return Promise.resolve(() => done(() => (reactive.prepare = prepare)));
      },
    },
    filters: {
      notOver: { $expr: { $gt: ['$until', '$$NOW'] } },
      over: { $expr: { $lte: ['$until', '$$NOW'] } },
      failing: { $expr: { $gt: [{ $divide: [1, '$other'] }, 0] } },
    },
  };
}
