/** Removes a task that left the code, and the triggers that only it needed. */
import { OptionError } from '../../core/errors.js';
import { show } from '../../core/options.js';
import type { ForgettingStore } from '../../store/reactive/forgetting.js';
import { MOST_PARTITIONS } from '../../store/reactive/partitions.js';
import type { Queryable } from '../connection/driver.js';
import { run, sqlState } from '../connection/errors.js';
import { rows } from '../connection/rows.js';
import { readShape } from '../tables/shape.js';
import { parseName } from '../tables/table-name.js';
import { dropStatements } from './feed/capture.js';
import { dropCapture } from './feed/leftovers.js';
import { prefixOf } from './partition.js';
import { namesOf } from './place.js';
import { NO_RIGHT, type SqlSources } from './sources.js';

/** A SQL expression: the names of a checkpoint in all partitions; that of partition 0 has no prefix. */
const everyPartition = (name: string): string => {
  const prefixes = Array.from({ length: MOST_PARTITIONS }, (_, index) => prefixOf({ index, of: index + 1 }));
  return `array(select p || ${name} from unnest(array[${prefixes.map((prefix) => `'${prefix}'`).join(', ')}]) as p)`;
};

/** $1 the task */
const retireStatement = ({ sql }: SqlSources): string => {
  const { definitions, states, partitionStates, tasks, checkpoints } = namesOf(sql);
  return `with state as (
      delete from ${states} where task = $1::text
    ), partition_state as (
      delete from ${partitionStates} where task = $1::text
    ), aside as (
      delete from ${checkpoints} where source = any(${everyPartition("'aside:' || $1::text")})
    ), keys as (
      delete from ${sql.names.table('task_keys')} where name = $1::text
    ), pause as (
      delete from ${sql.names.pauses} where kind = 'tasks' and name = $1::text
    ) select to_json(exists (select from ${definitions} where task = $1::text)
        or exists (select from ${states} where task = $1::text)
        or exists (select from ${tasks} where task = $1::text))::text as json`;
};

/** Tables that only this task is defined on. */
const ownSources = ({ sql }: SqlSources, task: string, on: Queryable): Promise<readonly string[]> => {
  const { definitions } = namesOf(sql);
  return rows<string>(
    on,
    `select distinct to_json(d.source)::text as json from ${definitions} d where d.task = $1::text
       and not exists (select from ${definitions} o where o.source = d.source and o.task <> $1::text)`,
    [task],
  );
};

async function dropTable(sources: SqlSources, task: string, source: string, on: Queryable): Promise<void> {
  const { sql } = sources;
  const { sources: kept, checkpoints } = namesOf(sql);
  const where = `tasks.forget(${show(task)})`;
  await on.query(`delete from ${kept} where name = $1::text`, [source]);
  await on.query(`delete from ${checkpoints} where source = any(${everyPartition('$1::text')})`, [source]);
  const shape = await readShape(on, sql.names.schema, parseName(where, source));
  if (shape === undefined) return;
  try {
    await dropCapture(on, sql.names, shape);
  } catch (error) {
    if (sqlState(error) !== NO_RIGHT) throw error;
    const statements = dropStatements(sql.names, shape).map((statement) => `${statement};`);
    throw new OptionError(
      `${where}: this role may not drop the triggers of ${show(shape.name)}. Run this as its owner, then try again:\n` +
        statements.join('\n'),
      { cause: error },
    );
  }
}

export const forgetting = (sources: SqlSources): ForgettingStore => ({
  retire: (task) =>
    run('forget a task', async () => {
      const [isKnown = false] = await rows<boolean>(sources.sql.driver, retireStatement(sources), [task]);
      return isKnown;
    }),
  deleteRecords: (task, limit) =>
    run('delete tasks', async () => {
      const { tasks } = namesOf(sources.sql);
      const text = `with gone as (
          delete from ${tasks} where task = $1::text
            and key in (select key from ${tasks} where task = $1::text order by key limit $2::integer)
          returning key
        ) select count(*)::text as json from gone`;
      const [count = 0] = await rows<number>(sources.sql.driver, text, [task, limit]);
      return count;
    }),
  deleteDefinitions: (task) =>
    run('forget a task', () =>
      sources.alone(`tasks.forget(${show(task)})`, async (transaction) => {
        for (const source of await ownSources(sources, task, transaction))
          await dropTable(sources, task, source, transaction);
        await transaction.query(`delete from ${namesOf(sources.sql).definitions} where task = $1::text`, [
          task,
        ]);
      }),
    ),
});
