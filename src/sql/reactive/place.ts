/** The building blocks of statements on a watched table. */
import { quoted } from '../schema/names.js';
import type { Sql } from '../connection/connection.js';
import { keyText } from './feed/capture.js';
import { literal, reactiveNames, type ReactiveNames } from './names.js';
import { tableOf, typeOf, type Shape } from '../tables/shape.js';

/** Times are stored in milliseconds. Rounded up, a task would be due before its time. */
export const NOW = `date_trunc('milliseconds', statement_timestamp())`;
export const RUNNING = `('processing', 'processing_dirty')`;

export const namesOf = ({ names }: Sql): ReactiveNames => reactiveNames(names);

/** The keys of a batch, each column with its type in the table. */
export const given = ({ key }: Shape, keys: string): string => `given as materialized (
    select e.key, ${key.map((column, at) => `(e.key::json ->> ${String(at)})::${typeOf(column)} as k${String(at)}`).join(', ')}
    from json_array_elements_text(${keys}) as e(key)
  )`;

/**
 * The rows of the batch. It is materialized as an optimization fence: a filter that fails on some other row of the
 * table must not be evaluated there, however the server would order its work. Equal keys may have different texts, and
 * only one text is the key.
 */
export const found = (shape: Shape): string => `found as materialized (
    select g.key, tidemill_row as doc from given g join ${tableOf(shape)} tidemill_row
      on ${shape.key.map(({ name }, at) => `tidemill_row.${quoted(name)} = g.k${String(at)}`).join(' and ')}
      and ${keyText(shape.key, 'tidemill_row')} = g.key
  )`;

/** A condition on a row of `found`. Its columns may be qualified with the name of the table. */
export const holds = ({ table }: Shape, condition: string | undefined): string =>
  condition === undefined
    ? 'true'
    : `exists (select from (select (f.doc).*) as ${quoted(table)} where (${condition}\n))`;

/** The primary key as users see it: its value, or an object of its columns. */
export const docId = ({ key }: Shape, row: string): string => {
  const value = (name: string): string => `to_jsonb(${row}.${quoted(name)})`;
  const [first, ...others] = key;
  if (first !== undefined && others.length === 0) return value(first.name);
  return `jsonb_build_object(${key.map(({ name }) => `${literal(name)}, ${value(name)}`).join(', ')})`;
};
