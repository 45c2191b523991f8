/** A column of a batch: its name and its type in SQL. */
export type BatchColumn = readonly [name: string, type: string];

/**
 * A batch as parameters. Columns with the same value in all rows are sent once, in $1; every other column is one array,
 * from $4 on. Reading rows out of JSON takes the server several times as long (ADR 14). $2 and $3 are left for the
 * notification.
 */
export interface Batch {
  /** A query for the rows: all the columns, and `at`, the position of each row from 0. */
  readonly rows: string;
  /** The length of each row, in characters. */
  readonly sizes: readonly number[];
  /**
   * The values of $1 (`shared`) and of the parameters from $4 on (`own`), for the rows from `from` up to but not
   * including `to`.
   */
  readonly values: (from: number, to: number) => { readonly shared: string; readonly own: readonly string[] };
}

type BatchRow = Readonly<Record<string, unknown>>;

/** Compares objects by identity: looking into them would cost more than it saves. */
const isShared = (rows: readonly BatchRow[], column: string): boolean => {
  const first = rows[0]?.[column];
  return rows.every((row) => row[column] === first);
};

/** A value as an element of an array literal. */
function element(value: unknown, type: string): string {
  if (value === undefined || value === null) return 'NULL';
  if (typeof value === 'string' && type !== 'jsonb') return quotedElement(value);
  // JSON text has no control characters, so stringifying it again escapes only quotes and backslashes. That is what an
  // array literal needs, and it is fast.
  return JSON.stringify(JSON.stringify(value));
}

const quotedElement = (text: string): string =>
  `"${text.replaceAll('\\', String.raw`\\`).replaceAll('"', String.raw`\"`)}"`;

const OWN_FROM = 4;

export function batchOf(columns: readonly BatchColumn[], rows: readonly BatchRow[]): Batch {
  const shared = columns.filter(([name]) => isShared(rows, name));
  const own = columns.filter((column) => !shared.includes(column));
  const cells = own.map(([name, type]) => rows.map((row) => element(row[name], type)));
  const [first = {}] = rows;
  const sharedText = JSON.stringify(Object.fromEntries(shared.map(([name]) => [name, first[name]])));
  return {
    rows: rowsQuery(shared, own),
    sizes: rows.map((_row, at) => cells.reduce((sum, column) => sum + (column[at]?.length ?? 0), 0)),
    values: (from, to) => ({
      shared: sharedText,
      own:
        own.length === 0
          ? [String(to - from)]
          : cells.map((column) => `{${column.slice(from, to).join(',')}}`),
    }),
  };
}

function rowsQuery(shared: readonly BatchColumn[], own: readonly BatchColumn[]): string {
  const arrays = own.map((_column, index) => `$${String(OWN_FROM + index)}::text::text[]`).join(', ');
  const names = [...own.map(([name]) => name), 'place'].join(', ');
  // If the rows differ in nothing, no array says how many there are.
  const ownRows =
    own.length === 0
      ? `generate_series(1, $${String(OWN_FROM)}::text::integer) as o(place)`
      : `unnest(${arrays}) with ordinality as o(${names})`;
  const list = shared.map(([name, type]) => `${name} ${type}`).join(', ');
  const sharedRow =
    shared.length === 0 ? '(select $1::text) as s' : `json_to_record($1::text::json) as s(${list})`;
  const picked = [
    '(o.place - 1)::integer as at',
    ...own.map(([name, type]) => (type === 'text' ? `o.${name}` : `o.${name}::${type} as ${name}`)),
    ...shared.map(([name]) => `s.${name}`),
  ];
  return `select ${picked.join(', ')} from ${ownRows} cross join ${sharedRow}`;
}
