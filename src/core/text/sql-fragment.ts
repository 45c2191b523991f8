/**
 * Marks a SQL condition, with its text and parameters kept apart. Only code can create one: a fragment is recognised by
 * this symbol, which no JSON, URL or command line can carry, and never by its shape. The symbol is global, so that two
 * copies of the package recognise each other's fragments.
 */
const BRAND = Symbol.for('tidemill.sql-fragment');

export class SqlFragment {
  /** Parameters are `$1`, `$2` and so on. */
  readonly text: string;
  readonly values: readonly unknown[];
  /** Type-level brand: an object of the same shape is not assignable. */
  declare protected readonly brand: true;

  constructor(text: string, values: readonly unknown[]) {
    this.text = text;
    this.values = Object.freeze([...values]);
    // Not enumerable, so that a spread or a clone of a fragment is plain data.
    Object.defineProperty(this, BRAND, { value: true });
    Object.freeze(this);
  }
}

export const isSqlFragment = (value: unknown): value is SqlFragment =>
  typeof value === 'object' && value !== null && Object.hasOwn(value, BRAND);
