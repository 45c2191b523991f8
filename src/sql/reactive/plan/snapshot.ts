/** The watched part of a row, built and compared by the server. */
import { quoted } from '../../schema/names.js';
import { fieldOf, type Field } from '../../tables/fields.js';
import type { Arguments } from '../../tables/arguments.js';
import type { Shape } from '../../tables/shape.js';

/** Keys with the keys below them. A key with none below it is taken whole. */
type Tree = Map<string, Tree>;

function grow(tree: Tree, [key, ...rest]: readonly string[]): void {
  if (key === undefined) return;
  const known = tree.get(key);
  // The whole value is already included.
  if (known?.size === 0) return;
  const below: Tree = known ?? new Map<string, Tree>();
  tree.set(key, below);
  grow(below, rest);
}

/** Paths into one column, as a tree. */
function treeOf(paths: readonly (readonly string[])[]): Tree {
  const tree: Tree = new Map<string, Tree>();
  for (const path of [...paths].sort((a, b) => a.length - b.length)) grow(tree, path);
  return tree;
}

const objectOf = (tree: Tree): object =>
  Object.fromEntries([...tree].map(([key, below]) => [key, objectOf(below)]));

/**
 * A missing part is left out, so that it differs from null. The expression itself takes objects apart; if there is an
 * array on the path, `picked` goes through it.
 */
function nested(value: string, tree: Tree, picked: string | undefined, args: Arguments): string {
  const parts = [...tree].map(([key, below]) => {
    const name = args.add(key, 'text');
    const inner = `(${value} -> ${name})`;
    const item = below.size === 0 ? inner : nested(inner, below, picked, args);
    return `case when ${item} is null then '{}'::jsonb else jsonb_build_object(${name}, ${item}) end`;
  });
  const through =
    picked === undefined
      ? ''
      : `when 'array' then ${picked}(${value}, ${args.add(JSON.stringify(objectOf(tree)), 'jsonb')})`;
  return `(case jsonb_typeof(${value}) when 'object' then ${parts.join(' || ')} ${through} end)`;
}

/**
 * A SQL expression: the part of `row` that a projection names, or all of it. Without `picked`, arrays on the path are
 * left out, as in the snapshots of earlier versions.
 */
export function projected(
  where: string,
  shape: Shape,
  projection: unknown,
  row: string,
  args: Arguments,
  picked: string | undefined,
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
    const item = nested(value, treeOf(of.map(({ path }) => path)), picked, args);
    return `case when ${item} is null then '{}'::jsonb else jsonb_build_object(${key}, ${item}) end`;
  });
  return `(${parts.join(' || ')})`;
}

const LONGEST_KEY = 1_024;

/**
 * A SQL expression: the text or number at a path into a snapshot, as text. Planning refuses no row, so whatever else is
 * there counts as ''. `trim_scale`: equal numbers have equal texts.
 */
export function keyAt(path: string, snapshot: string, args: Arguments): string {
  const value = [snapshot, ...path.split('.').map((key) => args.add(key, 'text'))].join(' -> ');
  return `coalesce((select text from (select case jsonb_typeof(value) when 'string' then value #>> '{}'
        when 'number' then trim_scale((value #>> '{}')::numeric)::text end as text
      from (select ${value} as value) v) t where char_length(text) <= ${String(LONGEST_KEY)}), '')`;
}

/**
 * A SQL expression: whether a row still has the snapshot of its task, the row `h`. An instance of an earlier version
 * leaves the source of a task null, and arrays out of its snapshot.
 */
export function isAsPlanned(
  where: string,
  shape: Shape,
  projection: unknown,
  row: string,
  args: Arguments,
  picked: string,
): string {
  const now = projected(where, shape, projection, row, args, picked);
  const isFlat = Object.keys(projection ?? {}).every((name) => fieldOf(where, shape, name).path.length === 0);
  if (isFlat) return `${now} = h.snapshot`;
  const before = projected(where, shape, projection, row, args, undefined);
  return `(${now} = h.snapshot or (h.source is null and ${before} = h.snapshot))`;
}
