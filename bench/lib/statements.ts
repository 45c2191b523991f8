import type pg from 'pg';
import type { Counting } from '../measure/tasks.js';

type Query = (this: pg.Client, first: string | { readonly text?: string }, ...rest: unknown[]) => unknown;

/** The first word of a statement, ignoring comments. */
function kindOf(first: string | { readonly text?: string }): string {
  const text = typeof first === 'string' ? first : (first.text ?? '');
  const bare = text.replaceAll(/--.*$|\/\*[\s\S]*?\*\//gmu, '');
  return /\w+/u.exec(bare)?.[0].toLowerCase() ?? 'other';
}

/** Counts the statements of all clients of one copy of node-postgres. A pool's queries go through its clients. */
export const countingStatements =
  ({ Client }: typeof pg): Counting =>
  () => {
    const prototype = Client.prototype as { query: Query };
    const original = prototype.query;
    const statements: Record<string, number> = {};
    prototype.query = function (first, ...rest) {
      const kind = kindOf(first);
      statements[kind] = (statements[kind] ?? 0) + 1;
      return original.call(this, first, ...rest);
    };
    return () => {
      prototype.query = original;
      return statements;
    };
  };
