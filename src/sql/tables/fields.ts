/** The names that filters and projections use for the parts of a row. */
import { OptionError } from '../../core/errors.js';
import { show, suggestion } from '../../core/options.js';
import { quoted } from '../schema/names.js';
import { SQL_INSTEAD } from '../reactive/plan/filter.js';
import type { Column, Shape } from './shape.js';

/** A place in a row: a column, or a path into a JSON column. */
export interface Field {
  readonly column: Column;
  readonly path: readonly string[];
  /** As the user wrote it. */
  readonly name: string;
  /** The column as a SQL expression. */
  readonly sql: string;
}

export interface Comparison {
  readonly operator: string;
  readonly operand: unknown;
}

export const isJson = ({ type, typeSchema }: Column): boolean =>
  typeSchema === 'pg_catalog' && (type === 'json' || type === 'jsonb');

/**
 * Finds a column by its full name, which may contain dots, or else by the longest prefix of the path that is one. `_id`
 * is a primary key of one column.
 */
export function fieldOf(where: string, shape: Shape, name: string): Field {
  const parts = name.split('.');
  for (let length = parts.length; length > 0; length -= 1) {
    const head = parts.slice(0, length).join('.');
    const column =
      shape.columns.find((one) => one.name === head) ??
      (head === '_id' && shape.key.length === 1 ? shape.key[0] : undefined);
    if (column === undefined) continue;
    const path = parts.slice(length);
    if (path.length > 0 && !isJson(column))
      throw new OptionError(
        `${where}: "${name}" goes into the column ${show(head)}, which is ${column.type} and not json or jsonb.`,
      );
    return { column, path, name, sql: `${quoted(shape.table)}.${quoted(column.name)}` };
  }
  const known = shape.columns.map((column) => column.name);
  const meant = parts[0] === 'sql' ? ` ${SQL_INSTEAD}` : '';
  throw new OptionError(
    `${where}: ${show(shape.name)} has no column ${show(parts[0])}.${suggestion(parts[0] ?? '', known)} ` +
      `Its columns: ${known.join(', ')}.${meant}`,
  );
}
