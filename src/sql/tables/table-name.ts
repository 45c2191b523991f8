import { OptionError } from '../../core/errors.js';
import { show } from '../../core/options.js';

const PARTS = /^(?<first>"(?:[^"]|"")+"|[^".]+)(?:\.(?<second>"(?:[^"]|"")+"|[^".]+))?$/u;
const plain = (part: string): string =>
  part.startsWith('"') ? part.slice(1, -1).replaceAll('""', '"') : part;

/** Parses `table` or `schema.table`; a part that contains a dot is written in double quotes. */
export function parseName(
  where: string,
  collection: string,
): { readonly schema?: string; readonly table: string } {
  const { first, second } = PARTS.exec(collection)?.groups ?? {};
  if (first === undefined)
    throw new OptionError(
      `${where}: collection must be a table, such as 'orders' or 'sales.orders'; a name with a dot or a quote in it is ` +
        `written in double quotes; got ${show(collection)}.`,
    );
  return second === undefined ? { table: plain(first) } : { schema: plain(first), table: plain(second) };
}
