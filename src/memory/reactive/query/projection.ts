import { OptionError } from '../../../core/errors.js';
import { show } from '../../../core/options.js';
import { compileExpression, type Expression, type Scope } from './expression.js';
import { isPlain, type Plain } from './values.js';

export type Projection = (scope: Scope) => Plain;

/** The fields to keep; `true` keeps the whole value. */
interface Kept {
  readonly [field: string]: Kept | true;
}

function keep(kept: Record<string, Kept | true>, where: string, path: string): void {
  const keys = path.split('.');
  let level = kept;
  for (const [at, key] of keys.entries()) {
    const known = level[key];
    const isLast = at === keys.length - 1;
    if (known === true || (isLast && known !== undefined))
      throw new OptionError(`${where}: watches ${show(path)} twice; name each path once.`);
    if (isLast) level[key] = true;
    else level = (level[key] ??= {}) as Record<string, Kept | true>;
  }
}

function pick(value: unknown, kept: Kept | true): unknown {
  if (kept === true) return value;
  if (Array.isArray(value)) return value.map((item) => pick(item, kept)).filter((item) => item !== undefined);
  if (!isPlain(value)) return undefined;
  const entries = Object.entries(value).flatMap(([key, item]) => {
    const picked = Object.hasOwn(kept, key) ? pick(item, kept[key] as Kept | true) : undefined;
    return picked === undefined ? [] : [[key, picked] as const];
  });
  return Object.fromEntries(entries);
}

/** Reads one field of a projection: it is kept or computed; exclusions throw. */
function readField(
  where: string,
  field: string,
  given: unknown,
  into: { readonly kept: Record<string, Kept | true>; readonly computed: Map<string, Expression> },
): void {
  if (given === true || (typeof given === 'number' && given !== 0)) keep(into.kept, where, field);
  else if (given === false || given === 0)
    throw new OptionError(
      `${where}: must not exclude ${show(field)}; name what is watched, such as { status: 1 }.`,
    );
  else if (isPlain(given) && !Object.keys(given).some((key) => key.startsWith('$')))
    for (const [key, inner] of Object.entries(given)) readField(where, `${field}.${key}`, inner, into);
  else if (field.includes('.'))
    throw new OptionError(`${where}: the memory store computes top-level fields only, got ${show(field)}.`);
  else into.computed.set(field, compileExpression(where, given));
}

/** Compiles a projection of inclusions and computed fields to a function. */
export function compileProjection(where: string, projection: unknown): Projection {
  if (projection === undefined) return ({ document }) => document;
  if (!isPlain(projection) || Object.keys(projection).length === 0)
    throw new OptionError(`${where}: name fields, such as { status: 1 }; got ${show(projection)}.`);
  const kept: Record<string, Kept | true> = {};
  const computed = new Map<string, Expression>();
  const { _id: id, ...fields } = projection;
  if (id === undefined || (id !== 0 && id !== false)) kept['_id'] = true;
  for (const [field, given] of Object.entries(fields)) readField(where, field, given, { kept, computed });
  return (scope) => {
    const picked = pick(scope.document, kept) as Record<string, unknown>;
    for (const [field, expression] of computed) {
      const value = expression(scope);
      if (value !== undefined) picked[field] = value;
    }
    return picked;
  };
}
