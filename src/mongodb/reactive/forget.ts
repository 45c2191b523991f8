/** Removes a task that left the code. */
import type { ForgettingStore } from '../../store/reactive/forgetting.js';
import type { Source } from '../../store/reactive/reactive.js';
import { run, type GlobalDocument, type Mongo } from '../context.js';
import { findExact } from '../exact.js';
import { ruleId } from '../limits/keys/document.js';
import { ownerOf } from './keyed.js';
import { keysOf } from './plan/walk.js';
import { MOST_PARTITIONS } from '../../store/reactive/partitions.js';
import { definedSources, idsOf } from './registry.js';
import { nameOfSource, type MongodbSources } from './sources.js';

const byName = (sources: readonly Source[]): ReadonlyMap<string, Source> =>
  new Map(sources.map((source) => [nameOfSource(source), source]));

const everyPartition = Array.from({ length: MOST_PARTITIONS }, (_, index) => idsOf({ index, of: index + 1 }));

export function forgetting(sources: MongodbSources): ForgettingStore {
  const globals = (): Mongo['globals'] => sources.mongo.globals;
  const definitionsOf = (task: string): { kind: GlobalDocument['kind']; task: string } => ({
    kind: 'definition',
    task,
  });
  return {
    retire: (task) =>
      run('forget a task', async () => {
        const states = everyPartition.map((ids) => ids.task(task));
        const state = await globals().deleteMany({ _id: { $in: states } });
        const asides = everyPartition.map((ids) => ids.aside(task));
        await globals().deleteMany({ _id: { $in: [...asides, `pause-task:${task}`] } });
        return state.deletedCount > 0 || (await globals().findOne(definitionsOf(task))) !== null;
      }),
    deleteRecords: (task, limit, source) =>
      run('delete tasks', async () => {
        const defined = (await definedSources(globals(), task)).map((one) => one.source);
        let deleted = 0;
        for (const place of byName([...defined, ...(source === undefined ? [] : [source])]).values()) {
          const { tasks } = sources.place(place);
          const keys = await findExact(tasks, { _id: keysOf(task) }, { projection: { _id: 1 } })
            .limit(limit - deleted)
            .toArray();
          if (keys.length === 0) continue;
          await tasks.deleteMany({ _id: { $in: keys.map((row): unknown => row['_id']) as never[] } });
          deleted += keys.length;
          if (deleted >= limit) break;
        }
        return deleted;
      }),
    deleteDefinitions: (task) =>
      run('forget a task', async () => {
        const defined = await definedSources(globals());
        const others = byName(defined.filter((one) => one.task !== task).map(({ source }) => source));
        const own = byName(defined.filter((one) => one.task === task).map(({ source }) => source));
        const unused = [...own].flatMap(([name, source]) =>
          others.has(name) ? [] : everyPartition.map((ids) => ids.checkpoint(source)),
        );
        await globals().deleteMany({ _id: { $in: unused } });
        const keys = { kind: 'key' as const, name: ownerOf(task) };
        await globals().deleteMany({ $or: [keys, { _id: ruleId(ownerOf(task)) }] });
        await globals().deleteMany(definitionsOf(task));
      }),
  };
}
