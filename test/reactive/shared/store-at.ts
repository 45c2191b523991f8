import { mongodb } from '../../../src/mongodb/index.js';
import { postgres } from '../../../src/postgres/index.js';
import type { Store } from '../../../src/store/port.js';

/** A text that tells another process where a PostgreSQL store is. */
export const addressOf = (url: string, schema: string): string => JSON.stringify({ url, schema });

/** The store at the address of a database: the uri of a MongoDB, or one of the above. */
export function storeAt(address: string): Store {
  if (!address.startsWith('{')) return mongodb({ uri: address });
  const { url, schema } = JSON.parse(address) as { url: string; schema: string };
  return postgres({ url, schema });
}
