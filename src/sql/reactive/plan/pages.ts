/** Reads keys in pages, in the order of an index. */
import type { Partition } from '../../../store/reactive/partitions.js';
import type { IdPage, Source, TaskPlan } from '../../../store/reactive/reactive.js';
import { run } from '../../connection/errors.js';
import { quoted } from '../../schema/names.js';
import { rows } from '../../connection/rows.js';
import { Arguments, pinned } from '../../tables/arguments.js';
import { keyText } from '../feed/capture.js';
import { inPartition, WHOLE } from '../partition.js';
import { namesOf } from '../place.js';
import { tableOf, typeOf, type Shape } from '../../tables/shape.js';
import type { SqlSources } from '../sources.js';
import { withShape } from '../statements.js';

function pageOf(keys: readonly string[], limit: number): IdPage {
  const ids = keys.slice(0, limit);
  const last = ids.at(-1);
  return { ids, ...(keys.length > limit && last !== undefined ? { after: last } : {}) };
}

/** The next rows of a table, in the order of its primary key. */
export function documentsStatement(
  shape: Shape,
  after: string | undefined,
  limit: number,
  partition: Partition = WHOLE,
): { readonly text: string; readonly args: Arguments } {
  const args = new Arguments();
  const columns = shape.key.map(({ name }) => `t.${quoted(name)}`).join(', ');
  const last = after === undefined ? '' : args.add(after, 'json');
  const beyond = shape.key.map((column, at) => `(${last} ->> ${String(at)})::${typeOf(column)}`).join(', ');
  const conditions = [
    ...(after === undefined ? [] : [`(${columns}) > (${beyond})`]),
    ...(partition.of === 1 ? [] : [inPartition(partition, keyText(shape.key, 't'))]),
  ];
  const where = conditions.length === 0 ? '' : `where ${conditions.join(' and ')}`;
  const text = `select to_json(key)::text from (
      select ${keyText(shape.key, 't')} as key from ${tableOf(shape)} t ${where}
      order by ${columns} limit ${args.add(String(limit), 'integer')}
    ) page`;
  return { text, args };
}

export async function documents(
  sources: SqlSources,
  source: Source,
  after: string | undefined,
  limit: number,
  partition: Partition,
): Promise<IdPage> {
  // A pass over the whole table often follows a change of its shape.
  if (after === undefined) sources.forget(source);
  return run('read keys', () =>
    withShape(sources, source, async (shape) => {
      if (shape === undefined) return { ids: [] };
      const { text, args } = documentsStatement(shape, after, limit + 1, partition);
      return pageOf(await pinned<string>(sources.sql.driver, namesOf(sources.sql).pinned, text, args), limit);
    }),
  );
}

/** The next keys that a task knows, in text order. */
export async function known(
  { sql }: SqlSources,
  { task }: TaskPlan,
  after: string | undefined,
  limit: number,
  partition: Partition,
): Promise<IdPage> {
  const text = `select to_json(key)::text as json from ${namesOf(sql).tasks}
    where task = $1::text and key > $2::text and ${inPartition(partition, 'key')} order by key limit $3::integer`;
  const keys = await run('read task keys', () =>
    rows<string>(sql.driver, text, [task, after ?? '', limit + 1]),
  );
  return pageOf(keys, limit);
}

/** Up to this many rows are counted; beyond that PostgreSQL's estimate is close enough. */
const COUNTED = 10_000;

/** The approximate number of rows in a table. */
export function size(sources: SqlSources, source: Source): Promise<number> {
  return run('count rows', () =>
    withShape(sources, source, async (shape) => {
      if (shape === undefined) return 0;
      const counted = `(select count(*) from (select from ${tableOf(shape)} limit ${String(COUNTED)}) few)`;
      const estimate = `(select reltuples::bigint from pg_catalog.pg_class where oid = $1::text::regclass)`;
      const text = `select to_json(greatest(${counted}, ${estimate}))::text as json`;
      return (await rows<number>(sources.sql.driver, text, [tableOf(shape)]))[0] ?? 0;
    }),
  );
}
