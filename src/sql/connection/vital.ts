import type { Sql } from './connection.js';
import type { Queryable } from './driver.js';

const SHORTEST_MS = 1_000;
const LONGEST_MS = 10_000;

/** For the statements that keep a lease: one that is not answered leaves time for another one. */
export const vitally = ({ driver }: Sql, leaseMs: number): Queryable =>
  driver.vital(Math.min(Math.max(leaseMs / 3, SHORTEST_MS), LONGEST_MS));
