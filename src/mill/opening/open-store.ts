import { fileURLToPath } from 'node:url';
import { OptionError } from '../../core/errors.js';
import { show } from '../../core/options.js';
import type { Store } from '../../store/port.js';

/** Settings that a URL does not carry. Stores that a setting does not concern ignore it. */
export interface OpenOptions {
  /** PostgreSQL and embedded: the schema. Default: `tidemill`. */
  readonly schema?: string;
  /** PostgreSQL: the size of the connection pool. Default: 10. */
  readonly connections?: number;
  /** MongoDB: the database. Default: the one in the URL. */
  readonly database?: string;
  /** MongoDB: the names of collections. */
  readonly collections?: Readonly<Partial<Record<'jobs' | 'globals' | 'metrics' | 'audit', string>>>;
  /**
   * For tools, which must create neither indexes nor a schema. `work` rejects an SQL schema that is missing or of
   * another version; `inspect` accepts whatever it finds. Default: neither; missing indexes or schemas are created.
   */
  readonly visit?: 'work' | 'inspect';
}

/** Returns the kind of the store that `openStore` creates from a URL. */
export function storeKindOf(url: string): 'mongodb' | 'postgres' | 'embedded' | 'memory' {
  if (/^mongodb(?:\+srv)?:\/\//u.test(url)) return 'mongodb';
  if (/^postgres(?:ql)?:\/\//u.test(url)) return 'postgres';
  return /^(?:file|embedded):/u.test(url) ? 'embedded' : 'memory';
}

/** Creates a store from its URL. Only the driver that it needs is loaded. */
export async function openStore(url: string, options: OpenOptions = {}): Promise<Store> {
  const { schema, connections, database, collections, visit } = options;
  const sql = {
    ...(schema === undefined ? {} : { schema }),
    ...(visit === undefined
      ? {}
      : { migrate: visit === 'work' ? ('visit' as const) : ('unchecked' as const) }),
  };
  const kind = storeKindOf(url);
  if (kind === 'mongodb') {
    const { mongodb } = await import('../../mongodb/index.js').catch((cause: unknown) => {
      throw new OptionError('The MongoDB store needs the driver: npm install mongodb', { cause });
    });
    return mongodb({
      uri: url,
      ...(database === undefined ? {} : { database }),
      ...(collections === undefined ? {} : { collections }),
      ...(visit === undefined ? {} : { createIndexes: 'unchecked' }),
    });
  }
  if (kind === 'postgres') {
    const { postgres } = await import('../../postgres/index.js').catch((cause: unknown) => {
      throw new OptionError('The PostgreSQL store needs the driver: npm install pg', { cause });
    });
    return postgres({ url, ...(connections === undefined ? {} : { connections }), ...sql });
  }
  if (kind === 'embedded') {
    const { embedded } = await import('../../embedded/index.js').catch((cause: unknown) => {
      throw new OptionError('The embedded store needs PGlite: npm install @electric-sql/pglite', { cause });
    });
    return embedded({ ...(url.startsWith('file:') ? { dir: folderOf(url) } : {}), ...sql });
  }
  const { memory } = await import('../../memory/index.js');
  return memory();
}

/**
 * The folder of a `file:` URL: `file:./dir` and `file:dir` are relative to the working directory, `file:///dir` is not.
 */
export const folderOf = (url: string): string =>
  url.startsWith('file://') ? fileURLToPath(url) : url.slice('file:'.length);

const KNOWN_URL = /^(?:mongodb(?:\+srv)?:\/\/.|postgres(?:ql)?:\/\/.|file:.|embedded:$|memory:)/u;

/** Throws for anything that is neither a store nor a URL that `openStore` accepts. */
export function checkStore(store: unknown): void {
  const known =
    'an opened store (mongodb({ … }), postgres({ … }), embedded({ … }), memory()), or a URL: ' +
    "'mongodb://host/db', 'postgres://host/db', 'file:./dir', 'embedded:' or 'memory:'";
  if (typeof store === 'string' ? KNOWN_URL.test(store) : isStore(store)) return;
  // The text may contain a password, even if it is no valid URL: only its beginning is shown.
  const shown = typeof store === 'string' ? show(store.split(/[:/@]/u)[0] ?? '') : show(store);
  const isPath = typeof store === 'string' && /^(?:\.{0,2}\/|\.{1,2}$)/u.test(store);
  const hint = isPath ? ` For a database in that folder: ${show(`file:${store}`)}.` : '';
  throw new OptionError(`new Tidemill: store must be ${known}; got ${shown}.${hint}`);
}

export const isStore = (value: unknown): boolean =>
  typeof value === 'object' && value !== null && 'jobs' in value && 'instances' in value;
