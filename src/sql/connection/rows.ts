import type { Queryable } from './driver.js';

/**
 * Runs a statement and parses its one column, `json`. Drops the empty row that a statement ending in `NOTIFY` returns for
 * its notification.
 */
export async function rows<T>(
  on: Queryable,
  text: string,
  values: (string | number | null)[] = [],
): Promise<readonly T[]> {
  const answer = await on.query(text, values);
  return answer.rows.flatMap(({ json }) =>
    typeof json === 'string' && json !== '' ? [JSON.parse(json) as T] : [],
  );
}

/** The form of every statement that returns jobs or tasks: one text for each. */
export const answering = (columns: string, from: string): string =>
  `select row_to_json(r)::text as json from (select ${columns} from ${from}) r`;
