/**
 * A condition in SQL, text and parameters apart. Only code makes one: it is recognised by a symbol, which no JSON, URL or
 * command line can carry, and never by its shape. The symbol is global, so that two copies of the package agree.
 */
const BRAND = Symbol.for('tidemill.sql-fragment');

export class SqlFragment {
  /** Parameters are `$1`, `$2` and so on. */
  readonly text: string;
  readonly values: readonly unknown[];
  /** For the compiler: no object of the same shape is one. */
  declare protected readonly brand: true;

  constructor(text: string, values: readonly unknown[]) {
    this.text = text;
    this.values = Object.freeze([...values]);
    // Not enumerable: a spread or a clone of a fragment is plain data again.
    Object.defineProperty(this, BRAND, { value: true });
    Object.freeze(this);
  }
}

export const isSqlFragment = (value: unknown): value is SqlFragment =>
  typeof value === 'object' && value !== null && Object.hasOwn(value, BRAND);
