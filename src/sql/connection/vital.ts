import type { Sql } from './connection.js';
import type { Queryable } from './driver.js';

const SHORTEST_MS = 1_000;
const LONGEST_MS = 10_000;

/**
 * For statements that keep a lease: a third of the lease each, between 1 and 10 s, so that a lost one leaves time for
 * another.
 */
export const vitally = ({ driver }: Sql, leaseMs: number): Queryable =>
  driver.vital(Math.min(Math.max(leaseMs / 3, SHORTEST_MS), LONGEST_MS));
