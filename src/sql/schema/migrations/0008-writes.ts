import type { Names } from '../names.js';
import type { Migration } from './migration.js';

/** An index that takes the place of an earlier one: its final name, and what it indexes. */
type Replaced = readonly [name: string, definition: string];

/**
 * The indexes for lists. Each is ascending: an index whose new entries come at its left edge splits its pages in the
 * middle, writes twice as much and is twice as large.
 */
const REPLACED: readonly Replaced[] = [
  // find by name and status, newest first; names and counts for stats.
  ['jobs_by_name', `(name, status, created_at, id) where status <> 'processing'`],
  // find by status, last changed first. Pending jobs that nothing has changed yet are listed by name.
  [
    'jobs_by_status',
    `(status, updated_at, id)
       where status in ('failed', 'cancelled') or (status = 'pending' and updated_at <> created_at)`,
  ],
  // find without a filter, newest first: jobs that the primary key does not have in that order.
  ['jobs_by_age', `(created_at, id) where timed is not true`],
  // reclaim, strays: the work in flight, by holder.
  ['jobs_held', `(claimed_by) where status = 'processing'`],
];

/** Built under another name, so that it can be built beforehand without a lock (docs/postgres.md). */
const replaced = ({ jobs, table }: Names, [name, definition]: Replaced): readonly string[] => [
  `create index if not exists ${name}_8 on ${jobs} ${definition}`,
  `drop index if exists ${table(name)}`,
  `alter index ${table(`${name}_8`)} rename to ${name}`,
];

/** Fewer and narrower index entries in the life of a job, and heartbeats that write one row per instance (ADR 25). */
export const writes: Migration = {
  version: 8,
  name: 'writes',
  compatibleSince: 6,
  up: (names) => [
    // True if the id begins with the time of creation. Older programs leave it null.
    `alter table ${names.jobs} add column if not exists timed boolean`,
    // When the lease was last renewed. Older programs leave it as it is.
    `alter table ${names.instances} add column renewed_at timestamptz(3)`,
    // find completed jobs, last changed first. Without the id, equal times share one entry.
    `create index if not exists jobs_completed on ${names.jobs} (updated_at) where status = 'completed'`,
    ...REPLACED.flatMap((one) => replaced(names, one)),
    // Room on each page for the next version of its jobs: the log then has what changed, not the whole job.
    `alter table ${names.jobs} set (fillfactor = 70)`,
  ],
};
