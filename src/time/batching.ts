import { OptionError } from '../core/errors.js';
import { checkInteger, show } from '../core/options.js';
import { toMs } from './duration.js';

/** How work of one name is gathered into batches. */
export interface Batching {
  /** The most work in one batch. */
  readonly size: number;
  /** How long a batch waits, after its first work was claimed, until it is full. */
  readonly waitMs: number;
  /** All work of one batch has the same key. Absent: keys do not matter. */
  readonly byKey?: true;
}

const MOST_IN_BATCH = 1_000;
/** Claimed work waits under lease, and no other instance can run it meanwhile. */
const LONGEST_WAIT = '1m';

/** Checks `size` and `wait`, of jobs and of reactive tasks. */
export function batchingOf(where: string, size: unknown, wait: unknown): Batching {
  const waitMs = toMs(where, 'wait', wait);
  if (waitMs > toMs(where, 'wait', LONGEST_WAIT))
    throw new OptionError(`${where}: wait must be at most ${show(LONGEST_WAIT)}, got ${show(wait)}.`);
  return { size: checkInteger(where, 'size', size, 1, MOST_IN_BATCH), waitMs };
}
