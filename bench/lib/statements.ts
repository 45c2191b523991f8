import type pg from 'pg';
import type { Counting } from '../measure/tasks.js';

type Query = (this: pg.Client, first: string | { readonly text?: string }, ...rest: unknown[]) => unknown;

/** The first word of a statement, ignoring comments. */
function kindOf(first: string | { readonly text?: string }): string {
  const text = typeof first === 'string' ? first : (first.text ?? '');
  const bare = text.replaceAll(/--.*$|\/\*[\s\S]*?\*\//gmu, '');
  return /\w+/u.exec(bare)?.[0].toLowerCase() ?? 'other';
}

/** Calls `heard` for each statement of one copy of node-postgres. A pool's queries go through its clients. */
function listen({ Client }: typeof pg, heard: (first: Parameters<Query>[0]) => void): () => void {
  const prototype = Client.prototype as { query: Query };
  const original = prototype.query;
  prototype.query = function (first, ...rest) {
    heard(first);
    return original.call(this, first, ...rest);
  };
  return () => (prototype.query = original);
}

/** Counts the statements of all clients. */
export const countingStatements =
  (driver: typeof pg): Counting =>
  () => {
    const statements: Record<string, number> = {};
    const end = listen(driver, (first) => {
      const kind = kindOf(first);
      statements[kind] = (statements[kind] ?? 0) + 1;
    });
    return () => {
      end();
      return statements;
    };
  };

/** Counts them from now on; the returned function tells how many there were so far. */
export function totalStatements(driver: typeof pg): () => number {
  let total = 0;
  listen(driver, () => (total += 1));
  return () => total;
}
