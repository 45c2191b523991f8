import { openPostgresSource, type SourceRow } from '../../mill/tools.js';
import { CliError, Exit } from '../exit.js';
import { safeUrl } from '../secrets.js';
import { BATCH, type Reading } from './reading.js';

/** The tables of another library, in a schema of their own. */
export interface Tables extends AsyncDisposable {
  readonly place: string;
  /** Returns the quoted name of a table. */
  readonly name: (table: string) => string;
  readonly query: (text: string, values?: readonly unknown[]) => Promise<readonly SourceRow[]>;
  /**
   * Reads page after page. Its last parameters are the keys of the row before, and the size of a page; `keys` says where
   * the next page begins.
   */
  readonly pages: (
    text: string,
    values: readonly unknown[],
    first: readonly unknown[],
    keys: (row: SourceRow) => readonly unknown[],
    read: (row: SourceRow) => Reading,
  ) => AsyncGenerator<readonly Reading[]>;
}

const quoted = (name: string): string => `"${name.replaceAll('"', '""')}"`;

/** Opens the schema, which must have the tables that mark it as the library's. */
export async function openTables(
  url: string,
  schema: string,
  { marks, library }: { readonly marks: readonly string[]; readonly library: string },
): Promise<Tables> {
  if (!url.startsWith('postgres'))
    throw new CliError(Exit.USAGE, '--from must be postgres://host/database for this library.');
  const source = await openPostgresSource(url);
  const name = (table: string): string => `${quoted(schema)}.${quoted(table)}`;
  try {
    for (const table of marks) {
      const [found] = await source.query('select to_regclass($1) is not null as known', [name(table)]);
      if (found?.['known'] !== true)
        throw new CliError(
          Exit.NOTHING_FOUND,
          `There is no table ${schema}.${table}, which the supported versions of ${library} have. Name another schema with --from-schema.`,
        );
    }
  } catch (error) {
    await source[Symbol.asyncDispose]();
    throw error;
  }
  return {
    place: `${safeUrl(url)}, schema ${schema}`,
    name,
    query: (text, values) => source.query(text, values),
    async *pages(text, values, first, keys, read) {
      for (let after = first; ;) {
        const rows = await source.query(text, [...values, ...after, BATCH]);
        const last = rows.at(-1);
        if (last === undefined) return;
        yield rows.map(read);
        if (rows.length < BATCH) return;
        after = keys(last);
      }
    },
    [Symbol.asyncDispose]: () => source[Symbol.asyncDispose](),
  };
}

/** The transaction that wrote a row last. */
export const versionOf = (row: unknown): string => String((row as SourceRow)['row_version']);

/**
 * Runs a statement for rows that still have the version with which they were read. `row_version` is the transaction that
 * wrote the row last, so any change of it counts.
 */
export async function unchangedOnly<Row extends SourceRow>(
  { query }: Tables,
  rows: readonly Row[],
  statement: (given: string) => {
    readonly text: string;
    readonly keys: readonly (readonly [a: string, b: string | null])[];
  },
): Promise<readonly Row[]> {
  if (rows.length === 0) return [];
  const given =
    '(select at, a, b, row_version from json_to_recordset($1::text::json) as r(at integer, a text, b text, row_version text))';
  const { text, keys } = statement(given);
  const values = rows.map((row, at) => ({
    at,
    a: keys[at]?.[0],
    b: keys[at]?.[1],
    row_version: row['row_version'],
  }));
  const done = await query(text, [JSON.stringify(values)]);
  return done.map(({ at }) => rows[at as number] as Row);
}
