/**
 * The library as its users get it: built. When it runs from source, the loader wraps every function, a cost that
 * users do not have.
 */
import type * as Dashboard from '../../src/dashboard/index.js';
import type * as Embedded from '../../src/embedded/index.js';
import type * as Index from '../../src/index.js';
import type * as Mongodb from '../../src/mongodb/index.js';
import type * as Postgres from '../../src/postgres/index.js';

interface Entries {
  readonly dashboard: typeof Dashboard;
  readonly embedded: typeof Embedded;
  readonly index: typeof Index;
  readonly mongodb: typeof Mongodb;
  readonly postgres: typeof Postgres;
}

/** Imports an entry of the package, as made by `npm run build`. */
export async function built<Entry extends keyof Entries>(entry: Entry): Promise<Entries[Entry]> {
  const { href } = new URL(`../../dist/${entry}.mjs`, import.meta.url);
  return (await import(href)) as Entries[Entry];
}
