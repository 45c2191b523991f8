import { describe, expect, it } from 'vitest';
import { orderOf } from '../../../src/core/records/limit-order.js';
import { memory } from '../../../src/memory/index.js';
import { namesIn } from '../../../src/sql/schema/names.js';
import type { Store } from '../../../src/store/port.js';
import { aClaim, ago, aJob, anInstance } from '../../../src/testing/conformance/fixtures.js';
import { opened } from '../../support/port.js';
import { freshPostgres, freshSchema, rawPool } from '../../support/stores.js';

const BACKLOG = 100_000;
const OTHERS = 100;
/** One of each key. */
const TURN = OTHERS + 1;
const pool = rawPool();

/** A customer with a hundred thousand jobs, and a hundred with one job each, which came later. */
const backlogs: readonly { readonly name: string; readonly fill: () => Promise<Store> }[] = [
  {
    name: 'memory',
    fill: async () => {
      const store = await opened(memory());
      const limitOrder = orderOf(0, 0);
      const jobOf = (limitKey: string, dueMs: number) =>
        aJob({ limitKey, limitOrder, nextRunAt: ago(dueMs), createdAt: ago(dueMs) });
      await store.jobs.insert(Array.from({ length: BACKLOG }, () => jobOf('flood', 60_000)));
      await store.jobs.insert(Array.from({ length: OTHERS }, (_none, n) => jobOf(`key-${String(n)}`, 1_000)));
      return store;
    },
  },
  {
    name: 'postgres',
    fill: async () => {
      const schema = freshSchema();
      const store = await opened(freshPostgres({ schema }));
      const fill = (key: string, due: string, count: number): Promise<unknown> =>
        pool.query(`insert into ${namesIn(schema).jobs} (name, limit_key, next_run_at)
          select 'work', ${key}, now() - interval '${due}' from generate_series(1, ${String(count)}) n`);
      await fill(`'flood'`, '1 minute', BACKLOG);
      await fill(`'key-' || n`, '1 second', OTHERS);
      return store;
    },
  },
];

/** The keys of the jobs that instances claim, until each of the hundred had its start, or after two turns. */
async function startsOf(store: Store, instances: number): Promise<readonly string[]> {
  const started: string[] = [];
  const claimers = Array.from({ length: instances }, () => anInstance());
  const limits = new Map([['work', { max: 10, rank: 0, of: instances, keys: {} }]]);
  const others = (): number => new Set(started.filter((key) => key !== 'flood')).size;
  while (others() < OTHERS && started.length < 2 * TURN) {
    const answers = await Promise.all(
      claimers.map((instance) => store.jobs.claim(aClaim(instance, { limits, total: 10 }))),
    );
    for (const { jobs } of answers) started.push(...jobs.map(({ limitKey = '' }) => limitKey));
  }
  return started;
}

describe.each(backlogs)('a key with 100,000 jobs ($name)', ({ fill }) => {
  it.each([1, 3])(
    'lets each of a hundred others start within two turns, on %i instances',
    async (instances) => {
      const started = await startsOf(await fill(), instances);
      expect(new Set(started).size).toBe(TURN);
      expect(started.length).toBeLessThanOrEqual(2 * TURN);
    },
    180_000,
  );
});
