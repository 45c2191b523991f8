/** The watched part of a row, made and compared by the server. */
import { OptionError } from '../../core/errors.js';
import { show } from '../../core/options.js';
import { quoted } from '../names.js';
import { fieldOf, type Field } from './fields.js';
import { isPlain } from './filter.js';
import type { Arguments } from './arguments.js';
import type { Shape } from './shape.js';

const FIX = "name columns or paths into JSON, such as { status: 1, 'address.city': 1 }";

export function checkProjection(where: string, option: string, projection: unknown): void {
  if (projection === undefined) return;
  if (!isPlain(projection) || Object.keys(projection).length === 0)
    throw new OptionError(`${where}: ${option} must ${FIX}; got ${show(projection)}.`);
  for (const [field, value] of Object.entries(projection)) {
    if (value === 1 || value === true) continue;
    const what = value === 0 || value === false ? 'exclude' : 'compute';
    throw new OptionError(`${where}: ${option} must not ${what} "${field}"; ${FIX}.`);
  }
}

interface Node {
  readonly key: string;
  readonly children: Node[];
}

/** Paths into one column, as the tree that they are. */
function treeOf(paths: readonly (readonly string[])[]): Node[] {
  const roots: Node[] = [];
  for (const path of paths) {
    let level = roots;
    for (const key of path) {
      let node = level.find((one) => one.key === key);
      if (node === undefined) level.push((node = { key, children: [] }));
      level = node.children;
    }
  }
  return roots;
}

/** What is missing is left out, so that it differs from null. */
function nested(value: string, nodes: readonly Node[], args: Arguments): string {
  const parts = nodes.map(({ key, children }) => {
    const name = args.add(key, 'text');
    const inner = `(${value} -> ${name})`;
    const item = children.length === 0 ? inner : nested(inner, children, args);
    return `case when ${item} is null then '{}'::jsonb else jsonb_build_object(${name}, ${item}) end`;
  });
  return `(case when jsonb_typeof(${value}) = 'object' then ${parts.join(' || ')} end)`;
}

/** An expression: the part of `row` that a projection names, or all of it. */
export function projected(
  where: string,
  shape: Shape,
  projection: unknown,
  row: string,
  args: Arguments,
): string {
  if (projection === undefined) return `to_jsonb(${row})`;
  const fields = Object.keys(projection as object).map((name) => fieldOf(where, shape, name));
  const columns = new Map<string, Field[]>();
  for (const field of fields)
    columns.set(field.column.name, [...(columns.get(field.column.name) ?? []), field]);
  const parts = [...columns].map(([name, of]) => {
    const value = `to_jsonb((${row}).${quoted(name)})`;
    const key = args.add(name, 'text');
    if (of.some(({ path }) => path.length === 0)) return `jsonb_build_object(${key}, ${value})`;
    const item = nested(value, treeOf(of.map(({ path }) => path)), args);
    return `case when ${item} is null then '{}'::jsonb else jsonb_build_object(${key}, ${item}) end`;
  });
  return `(${parts.join(' || ')})`;
}
