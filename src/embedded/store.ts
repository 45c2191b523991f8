import { OptionError } from '../core/errors.js';
import { checkKeys, checkText, show } from '../core/options.js';
import type { Opened } from '../sql/connection/connection.js';
import type { Driver } from '../sql/connection/driver.js';
import { SQL_OPTIONS, SqlStore, type SqlOptions } from '../sql/store.js';
import { given, inFolder, inMemory, type EmbeddedDatabase } from './driver.js';
import { LeaseClock } from './lease-clock.js';

export interface EmbeddedOptions extends SqlOptions {
  /** Folder of the database, created on first use. Without it, the database is lost with the process. Default: none. */
  readonly dir?: string;
  /**
   * Your own PGlite in place of `dir`, which Tidemill never closes. Do not open the store inside one of its
   * transactions. Default: none.
   */
  readonly database?: EmbeddedDatabase;
}

const WHERE = 'embedded()';

export class EmbeddedStore extends SqlStore {
  constructor(options: EmbeddedOptions) {
    const { dir, database, ...rest } = checked(options);
    super('embedded', rest, async () => {
      if (database !== undefined) return opened(await given(database), false);
      return dir === undefined ? opened(await inMemory(), false) : opened(await inFolder(dir), true);
    });
  }
}

/** `alone`: no other process has the database open, so every instance registered in it is dead. */
function opened(driver: Driver, alone: boolean): Opened {
  const leases = new LeaseClock();
  leases.start();
  return {
    driver: {
      ...driver,
      close: () => {
        leases.stop();
        return driver.close();
      },
    },
    leaseNow: () => `to_timestamp(${String(leases.now())}::double precision / 1000)`,
    // PGlite has no autovacuum worker, whatever its settings say.
    tidy: async ({ jobs, instances, metricCounts, metricShares, metricMinutes, table }) => {
      const measures = [metricCounts, metricShares, metricMinutes];
      const limits = ['limits', 'job_keys', 'key_wakes', 'task_keys', 'task_key_wakes'].map(table);
      for (const name of [jobs, instances, table('tasks'), table('changes'), ...limits, ...measures])
        await driver.query(`vacuum ${name}`);
    },
    ready: async ({ instances }) => {
      if (alone) await driver.query(`update ${instances} set lease_until = to_timestamp(0), dead = true`);
    },
  };
}

function checked(options: EmbeddedOptions): EmbeddedOptions {
  checkKeys(WHERE, options, ['dir', 'database', ...SQL_OPTIONS]);
  const { dir, database } = options;
  if (dir !== undefined) checkText(WHERE, 'dir', dir);
  if (database === undefined) return options;
  if (dir !== undefined) throw new OptionError(`${WHERE}: pass either dir or database, not both.`);
  if (typeof database.query !== 'function' || typeof database.listen !== 'function')
    throw new OptionError(`${WHERE}: database must be a PGlite, got ${show(database)}.`);
  return options;
}
