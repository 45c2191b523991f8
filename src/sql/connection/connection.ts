import { StoreError } from '../../core/errors.js';
import { ServerClock } from '../../core/server-clock.js';
import { StoreConnection } from '../../store/helpers/store-connection.js';
import { Notifier } from '../cluster/notifier.js';
import type { Driver, Queryable } from './driver.js';
import { run } from './errors.js';
import { withRetries } from './conflicts.js';
import { checkMigrated, migrate, versionOf } from '../schema/migrate.js';
import type { Names } from '../schema/names.js';
import { rows } from './rows.js';

/** A database that was just opened, with what is particular to its driver. */
export interface Opened {
  readonly driver: Driver;
  /** A SQL expression: the time by which leases are granted and checked. */
  readonly leaseNow: () => string;
  /** Called once a minute if the server has no autovacuum worker. */
  readonly tidy?: (names: Names) => Promise<void>;
  /** Called once, as soon as the schema exists. */
  readonly ready?: (names: Names) => Promise<void>;
}

/** What every query file needs. */
export interface Sql {
  readonly driver: Driver;
  readonly names: Names;
  readonly clock: ServerClock;
  readonly notifier: Notifier;
  readonly leaseNow: () => string;
  readonly tidy: () => Promise<void>;
  /** Handles of transactions that the store itself has opened and not ended yet. */
  readonly ownTransactions: WeakSet<Queryable>;
}

export interface ConnectionOptions {
  readonly names: Names;
  /** True: migrate the schema. False and `'visit'`: only check it. `'unchecked'`: use it as it is. */
  readonly migrate: boolean | 'visit' | 'unchecked';
  readonly notify: 'later' | 'commit';
  readonly open: () => Promise<Opened>;
}

/** A producer that runs for long reads the server's time again after this long. */
const CLOCK_AGE_MS = 60_000;
const CLOCK_READINGS = 3;

/** Opens the database for the first holder, and closes it after the last one. */
export class SqlConnection {
  readonly clock: ServerClock = new ServerClock();
  readonly #options: ConnectionOptions;
  readonly #connection = new StoreConnection(() => this.#connect());

  constructor(options: ConnectionOptions) {
    this.#options = options;
  }

  get sql(): Sql {
    const { current } = this.#connection;
    if (current !== undefined) return current;
    throw new StoreError('The store is closed; the next call on a mill opens it again.', {
      transient: true,
    });
  }

  get isOpen(): boolean {
    return this.#connection.current !== undefined;
  }

  async acquire(holder: object): Promise<void> {
    const { driver } = await this.#connection.acquire(holder);
    if (this.clock.age > CLOCK_AGE_MS) await this.#readClock(driver);
  }

  async release(holder: object): Promise<void> {
    const sql = await this.#connection.release(holder);
    sql?.notifier.stop();
    await sql?.driver.close();
  }

  async #connect(): Promise<Sql> {
    const { names, open, notify } = this.#options;
    return run('open the store', async () => {
      const { leaseNow, tidy, ready, ...opened } = await open();
      const driver = withRetries(opened.driver);
      try {
        const there = await this.#prepare(driver);
        await this.#readClock(driver);
        if (there) await ready?.(names);
      } catch (error) {
        await driver.close().catch(() => undefined);
        throw error;
      }
      const notifier = new Notifier(driver, names, notify === 'commit');
      return {
        driver,
        names,
        clock: this.clock,
        notifier,
        leaseNow,
        tidy: async () => tidy?.(names),
        ownTransactions: new WeakSet(),
      };
    });
  }

  /** Returns false if there is no schema, which `'unchecked'` allows. */
  async #prepare(driver: Driver): Promise<boolean> {
    const { names, migrate: wanted } = this.#options;
    if (wanted === 'unchecked') return (await versionOf(driver, names)) > 0;
    await (wanted === true ? migrate(driver, names) : checkMigrated(driver, names, wanted === 'visit'));
    return true;
  }

  async #readClock(driver: Driver): Promise<void> {
    for (let reading = 0; reading < CLOCK_READINGS; reading += 1) {
      const sentAt = performance.now();
      const [ms] = await run('read the clock', () => rows<number>(driver, READ_CLOCK));
      this.clock.learn(new Date(ms ?? 0), sentAt, performance.now());
    }
  }
}

const READ_CLOCK = `select round(extract(epoch from clock_timestamp()) * 1000)::text as json`;
