/** Triggers outlive the task that they were made for; they are dropped on request only. */
import { OptionError } from '../../../core/errors.js';
import { show } from '../../../core/options.js';
import type { Queryable } from '../../connection/driver.js';
import { run } from '../../connection/errors.js';
import { rows } from '../../connection/rows.js';
import { dropStatements, dropUnusedFunctions } from './capture.js';
import { namesOf } from '../place.js';
import type { Names } from '../../schema/names.js';
import { readShape, type Shape } from '../../tables/shape.js';
import { parseName } from '../../tables/table-name.js';
import type { SqlSources } from '../sources.js';

/** A table with Tidemill's triggers, and the tasks on it that live instances run. */
interface Watched {
  readonly schema: string;
  readonly table: string;
  readonly tasks: readonly string[];
}

/** $1 Tidemill's schema */
const watchedStatement = ({ sql }: SqlSources): string => `
  select json_build_object('schema', w.nspname, 'table', w.relname, 'tasks', (
      select coalesce(json_agg(distinct d.task), '[]')
      from ${namesOf(sql).sources} s
      join ${namesOf(sql).definitions} d on d.source = s.name
      join ${sql.names.instances} i on not i.dead and i.tasks @> jsonb_build_array(jsonb_build_object('task', d.task))
      where 'capture_' || s.capture = w.proname))::text as json
  from (
    select distinct n.nspname, c.relname, p.proname
    from pg_catalog.pg_trigger g
    join pg_catalog.pg_proc p on p.oid = g.tgfoid
    join pg_catalog.pg_namespace pn on pn.oid = p.pronamespace
    join pg_catalog.pg_class c on c.oid = g.tgrelid
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where g.tgparentid = 0 and pn.nspname = $1::text and starts_with(p.proname, 'capture_')
  ) w`;

const watched = (sources: SqlSources, on: Queryable = sources.sql.driver): Promise<readonly Watched[]> =>
  rows<Watched>(on, watchedStatement(sources), [sources.sql.names.schema]);

/** Tables whose changes are recorded although no live instance runs a task on them. */
export function leftoverTables(sources: SqlSources): Promise<readonly string[]> {
  return run('look for leftovers', async () => {
    const idle = (await watched(sources)).filter(({ tasks }) => tasks.length === 0);
    const shapes = await Promise.all(
      idle.map((name) => readShape(sources.sql.driver, sources.sql.names.schema, name)),
    );
    return [...new Set(shapes.flatMap((shape) => shape?.name ?? []))].sort();
  });
}

/** Drops the triggers of a table and their functions. Returns false if there were none. */
export async function dropCapture(on: Queryable, names: Names, shape: Shape): Promise<boolean> {
  const statements = dropStatements(names, shape);
  for (const statement of statements) await on.query(statement);
  await dropUnusedFunctions(on, names, shape);
  return statements.length > 0;
}

/**
 * Drops the triggers of a table, and what the cluster knows of the tasks on it: a planner that knew them would create
 * the triggers again. Definitions stay, since an instance may be about to advertise one; its task then counts as new.
 * The records of runs stay as well. Returns false if there were no triggers.
 */
export async function dropTriggers(sources: SqlSources, collection: string): Promise<boolean> {
  const where = `dropTriggers(${show(collection)})`;
  const { names } = sources.sql;
  const { definitions, states, partitionStates, sources: kept } = namesOf(sources.sql);
  const drop = async (transaction: Queryable): Promise<boolean> => {
    const shape = await readShape(transaction, names.schema, parseName(where, collection));
    if (shape === undefined) return false;
    const [busy] = (await watched(sources, transaction)).filter(
      ({ schema, table, tasks }) => schema === shape.schema && table === shape.table && tasks.length > 0,
    );
    if (busy !== undefined)
      throw new OptionError(
        `${where}: live instances run ${busy.tasks.join(', ')} on this table. Deploy without these tasks first.`,
      );
    const tasks = `(select task from ${definitions} where source = $1::text)`;
    for (const table of [states, partitionStates])
      await transaction.query(`delete from ${table} where task in ${tasks}`, [shape.name]);
    await transaction.query(`delete from ${kept} where name = $1::text`, [shape.name]);
    return dropCapture(transaction, names, shape);
  };
  return run('drop triggers', () => sources.alone(where, drop));
}
