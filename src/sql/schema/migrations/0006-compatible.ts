import type { Migration } from './migration.js';

/** From here on each step says which older versions work with it. */
export const compatible: Migration = {
  version: 6,
  name: 'compatible',
  compatibleSince: 5,
  up: ({ migrations }) => [`alter table ${migrations} add column compatible_since integer`],
};
