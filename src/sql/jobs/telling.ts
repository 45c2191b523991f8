import type { Sql } from '../connection/connection.js';

/** Tells watchers of jobs once the work is written. */
export async function telling<T>(
  sql: () => Sql,
  work: Promise<T>,
  ids: (result: T) => readonly string[],
): Promise<T> {
  const result = await work;
  const { notifier } = sql();
  if (notifier.watched) notifier.changed(ids(result));
  return result;
}
