/** The document store once it is loaded: rows of the user's own tables, for a scheduler. */
import { OptionError } from '../../core/errors.js';
import { show } from '../../core/options.js';
import type { ServerClock } from '../../core/server-clock.js';
import { fenceOf, type DocumentJobStore, type DocumentPlace } from '../../store/documents.js';
import type { Sql } from '../connection/connection.js';
import { countDocuments, findDocuments } from './find.js';
import { documentIndexFaults } from './due-index.js';
import { lock, look, readOne } from './lock.js';
import { jobOfRow } from './row.js';
import { readTable, type DocumentTable } from './table.js';
import { settle } from './write.js';
import { isOutdated, run } from '../connection/errors.js';

/** The store that the table is in. It stays open while it has a holder. */
export interface Home {
  readonly clock: ServerClock;
  readonly sql: () => Sql;
  readonly acquire: (holder: object) => Promise<void>;
  readonly release: (holder: object) => Promise<void>;
}

/** Time limit of a renewal. Locks last longer, so a failed renewal can be repeated. */
const RENEWAL_MS = 5_000;

export function tableJobs(home: Home, place: DocumentPlace): DocumentJobStore {
  const where = `documents(${show(place.collection)})`;
  const holder = {};
  let known: DocumentTable | undefined;
  let turn = 0;

  const table = async (): Promise<DocumentTable> => {
    const { driver, names } = home.sql();
    known ??= await run('look at a table', () => readTable(where, driver, names.schema, place));
    return known;
  };

  /** Reads the shape of the table again if it was altered. */
  const on = async <T>(work: (sql: Sql, at: DocumentTable) => Promise<T>): Promise<T> => {
    const used = await table();
    try {
      return await work(home.sql(), used);
    } catch (error) {
      if (!isOutdated(error)) throw error;
      known = undefined;
      return work(home.sql(), await table());
    }
  };

  const one = async (write: Parameters<typeof settle>[2][number]): Promise<boolean> =>
    (await on((sql, at) => settle(sql, at, [write])))[0] === true;

  return {
    clock: home.clock,
    open: async ({ counts }) => {
      await home.acquire(holder);
      known = undefined;
      try {
        const { parts, from } = await table();
        if (!counts || parts.failure !== undefined) return;
        throw new OptionError(
          `${where}: retryPolicy needs a column in which to count failures: ALTER TABLE ${from} ADD COLUMN "scheduleFailure" jsonb, or name one ` +
            'with fields.failure.',
        );
      } catch (error) {
        // Not opened, so it will not be closed: the store must not stay open for it.
        await home.release(holder);
        throw error;
      }
    },
    close: () => home.release(holder),
    read: (row) => {
      if (known === undefined)
        throw new OptionError(
          `${where}: the columns of the table are not known yet; start the schedule first.`,
        );
      return jobOfRow(known, row);
    },
    get marks() {
      return known?.parts.failure !== undefined;
    },
    lockNext: async (lockUntil, { marks = false, notAfter }) =>
      (await on((sql, at) => lock(sql, at, { lockUntil, limit: 1, marks, notAfter })))[0],
    lockMany: (lockUntil, { limit, marks = false, notAfter }) =>
      on((sql, at) => lock(sql, at, { lockUntil, limit, marks, notAfter })),
    current: (id) => on((sql, at) => readOne(sql, at, id)),
    update: (id, changes, options) => one({ id, changes, ...fenceOf(options) }),
    remove: (id, options) => one({ id, remove: true, ...fenceOf(options) }),
    settle: (writes) => on((sql, at) => settle(sql, at, writes)),
    renew: (locks, sleepUntil, { marks = false }) =>
      on((sql, at) =>
        settle(
          { ...sql, driver: { ...sql.driver, ...sql.driver.vital(RENEWAL_MS) } },
          at,
          locks.map((one) => ({ ...one, changes: { sleepUntil }, ...(marks ? { mark: sleepUntil } : {}) })),
        ),
      ),
    look: ({ withinMs, known: reported }) => {
      turn += 1;
      return on((sql, at) => look(sql, at, { withinMs, known: reported, turn }));
    },
    count: (query) => on((sql, at) => countDocuments(sql, at, query)),
    find: (query) => on((sql, at) => findDocuments(sql, at, query)),
    indexFaults: () => on((sql, at) => documentIndexFaults(sql, at)),
  };
}
