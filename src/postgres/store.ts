import { OptionError } from '../core/errors.js';
import { checkInteger, checkKeys, checkText, show } from '../core/options.js';
import { SQL_OPTIONS, SqlStore, type SqlOptions } from '../sql/store.js';
import type { PostgresPool } from './client.js';
import { borrowed, opened } from './driver.js';

export interface PostgresOptions extends SqlOptions {
  /** Connection string: `postgres://user@host/database`. Default: none; give this or `pool`. */
  readonly url?: string;
  /** Your own node-postgres pool, which Tidemill never closes. Default: none; give this or `url`. */
  readonly pool?: PostgresPool;
  /** Size of the pool that is opened for `url`. Default: 10. */
  readonly connections?: number;
  /** Where to listen for wake-ups if `url` or `pool` leads through a transaction pooler. Default: `url` or `pool`. */
  readonly listenUrl?: string;
}

const WHERE = 'postgres()';
const CONNECTIONS = 10;

export class PostgresStore extends SqlStore {
  constructor(options: PostgresOptions) {
    const { url, pool, listenUrl, connections = CONNECTIONS, ...rest } = checked(options);
    super('postgres', rest, async () => ({
      driver: pool === undefined ? opened(url ?? '', connections, listenUrl) : borrowed(pool, listenUrl),
      leaseNow: () => 'statement_timestamp()',
    }));
  }
}

function checked(options: PostgresOptions): PostgresOptions {
  checkKeys(WHERE, options, ['url', 'pool', 'connections', 'listenUrl', ...SQL_OPTIONS]);
  const { url, pool, connections, listenUrl } = options;
  if ((url === undefined) === (pool === undefined))
    throw new OptionError(`${WHERE}: pass either url or pool.`);
  for (const [option, text] of Object.entries({ url, listenUrl })) {
    if (text !== undefined && !/^postgres(?:ql)?:\/\//u.test(checkText(WHERE, option, text)))
      throw new OptionError(`${WHERE}: ${option} must begin with postgres:// or postgresql://.`);
  }
  if (pool !== undefined) checkPool(pool);
  if (connections !== undefined) {
    checkInteger(WHERE, 'connections', connections, 2, 1_000);
    if (pool !== undefined)
      throw new OptionError(`${WHERE}: connections applies to url only; set max on your own pool.`);
  }
  return options;
}

function checkPool(pool: PostgresPool): void {
  if (typeof pool.connect !== 'function' || typeof pool.query !== 'function')
    throw new OptionError(`${WHERE}: pool must be a Pool of the pg package, got ${show(pool)}.`);
}
