import { fileURLToPath } from 'node:url';
import { OptionError } from './core/errors.js';
import { show } from './core/options.js';
import type { Store } from './store/port.js';

/** A store from its URL. Drivers are loaded only here, and only the one that is needed. */
export async function openStore(url: string): Promise<Store> {
  if (/^mongodb(?:\+srv)?:\/\//u.test(url)) {
    const { mongodb } = await import('./mongodb/index.js').catch((cause: unknown) => {
      throw new OptionError('The MongoDB store needs the driver: npm install mongodb', { cause });
    });
    return mongodb({ uri: url });
  }
  if (/^postgres(?:ql)?:\/\//u.test(url)) {
    const { postgres } = await import('./postgres/index.js').catch((cause: unknown) => {
      throw new OptionError('The PostgreSQL store needs the driver: npm install pg', { cause });
    });
    return postgres({ url });
  }
  if (url.startsWith('file:')) {
    const { embedded } = await import('./embedded/index.js').catch((cause: unknown) => {
      throw new OptionError('The embedded store needs PGlite: npm install @electric-sql/pglite', { cause });
    });
    return embedded({ dir: folderOf(url) });
  }
  const { memory } = await import('./memory/index.js');
  return memory();
}

/** `file:./dir` and `file:dir` are relative to where the process runs; `file:///dir` is a URL like any other. */
const folderOf = (url: string): string =>
  url.startsWith('file://') ? fileURLToPath(url) : url.slice('file:'.length);

const KNOWN_URL = /^(?:mongodb(?:\+srv)?:\/\/.|postgres(?:ql)?:\/\/.|file:.|memory:)/u;

/** Refuses what is neither a store nor a URL that `openStore` can open. */
export function checkStore(store: unknown): void {
  const known =
    'an opened store (mongodb({ … }), postgres({ … }), embedded({ … }), memory()), or a URL: ' +
    "'mongodb://host/db', 'postgres://host/db', 'file:./dir' or 'memory:'";
  if (typeof store === 'string' ? KNOWN_URL.test(store) : isStore(store)) return;
  // A URL may carry a password: only its beginning is shown.
  const shown = typeof store === 'string' ? show(store.split('://')[0] ?? '') : show(store);
  throw new OptionError(`new Tidemill: store must be ${known}; got ${shown}.`);
}

const isStore = (value: unknown): boolean =>
  typeof value === 'object' && value !== null && 'jobs' in value && 'instances' in value;
