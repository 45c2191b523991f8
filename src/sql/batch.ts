/** A column of a batch: its name and its type in SQL. */
export type BatchColumn = readonly [name: string, type: string];

/** A batch as parameters: what all rows share is said once, since the server takes its time over every value. */
export interface Batch {
  /** A query that gives the rows, with all the columns. */
  readonly rows: string;
  /** The JSON of each row, as far as they differ; $1 is a list of these. */
  readonly own: readonly string[];
  /** $4: what they share. */
  readonly shared: string;
}

type BatchRow = Readonly<Record<string, unknown>>;

/** Objects are compared by identity: looking into them would cost more than it saves. */
const isShared = (rows: readonly BatchRow[], column: string): boolean => {
  const first = rows[0]?.[column];
  return rows.every((row) => row[column] === first);
};

/** The statement has $2 and $3 for ringing. */
export function batchOf(columns: readonly BatchColumn[], rows: readonly BatchRow[]): Batch {
  const shared = columns.filter(([name]) => isShared(rows, name));
  const own = columns.filter((column) => !shared.includes(column));
  const list = (some: readonly BatchColumn[]): string =>
    some.map(([name, type]) => `${name} ${type}`).join(', ');
  const pick = (row: BatchRow, some: readonly BatchColumn[]): object =>
    Object.fromEntries(some.flatMap(([name]) => (row[name] === undefined ? [] : [[name, row[name]]])));
  const ownRows =
    own.length === 0
      ? 'json_array_elements($1::text::json) as o'
      : `json_to_recordset($1::text::json) as o(${list(own)})`;
  const sharedRow =
    shared.length === 0 ? '(select $4::text) as s' : `json_to_record($4::text::json) as s(${list(shared)})`;
  return {
    rows: `select ${columns.map(([name]) => name).join(', ')} from ${ownRows} cross join ${sharedRow}`,
    own: rows.map((row) => JSON.stringify(pick(row, own))),
    shared: JSON.stringify(pick(rows[0] ?? {}, shared)),
  };
}
