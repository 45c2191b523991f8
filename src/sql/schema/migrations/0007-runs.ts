import type { Migration } from './migration.js';

/**
 * What each instance runs, as two short texts: instances compare them instead of reading each other's names. Null if
 * an older version registered it.
 */
export const runs: Migration = {
  version: 7,
  name: 'runs',
  compatibleSince: 5,
  up: ({ instances }) => [
    `alter table ${instances} add column runs_jobs text collate "C", add column runs_tasks text collate "C"`,
  ],
};
