import type { Queryable } from '../connection/driver.js';

/** Collects the values of a statement that runs under fixed settings. Each is a text, cast where it is used. */
export class Arguments {
  readonly texts: (string | null)[] = [];
  readonly expressions: string[] = [];

  /** Adds a value, and returns the SQL expression for it, cast to `type`. */
  add(value: string | null, type: string): string {
    this.texts.push(value);
    const expression = `($1[${String(this.texts.length)}]::${type})`;
    this.expressions.push(expression);
    return expression;
  }

  json(value: unknown): string {
    return this.add(JSON.stringify(value), 'json');
  }
}

/** Runs a statement that returns JSON texts under fixed settings. Its own `$1` is the list of arguments. */
export async function pinnedTexts(
  on: Queryable,
  name: string,
  statement: string,
  args: Arguments,
): Promise<readonly string[]> {
  const { rows } = await on.query(
    `select answer as json from ${name}($1::text, array(select json_array_elements_text($2::text::json))) as answer`,
    [statement, JSON.stringify(args.texts)],
  );
  return rows.map(({ json }) => json as string);
}

export const pinned = async <T>(
  on: Queryable,
  name: string,
  statement: string,
  args: Arguments,
): Promise<readonly T[]> =>
  (await pinnedTexts(on, name, statement, args)).map((text) => JSON.parse(text) as T);
