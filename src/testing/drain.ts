import type { Clock } from '../core/clock.js';
import {
  ORDINARY,
  tallied,
  timeoutOf,
  untilIdle,
  type AnyMill,
  type Drained,
  type DrainOptions,
} from './idle.js';
import { TestMill } from './test-mill.js';

export interface MillDrainOptions extends DrainOptions {
  /** The clock of a memory store. Default: the time of day. */
  readonly clock?: Clock;
}

/**
 * Waits until no job of this mill runs and none is due, whatever its store. A mill that is not started is started for
 * that, and stopped again. What is due later, retries included, stays where it is.
 */
export async function drain(mill: AnyMill, options: MillDrainOptions = {}): Promise<Drained> {
  if (mill instanceof TestMill) return mill.drain(options);
  const timeoutMs = timeoutOf('drain', options, ['clock']);
  return tallied(mill, () => working(mill, () => untilIdle(mill, timeoutMs, surroundings(options))));
}

/**
 * As `drain`, for what is due at the moment of the call. Other work that is due meanwhile may run as well, but is not
 * waited for; a `TestMill` leaves it alone.
 */
export async function runDue(mill: AnyMill, options: MillDrainOptions = {}): Promise<Drained> {
  if (mill instanceof TestMill) return mill.runDue(options);
  const timeoutMs = timeoutOf('runDue', options, ['clock']);
  const { now } = surroundings(options);
  const due = await mill.jobs.find(
    { name: mill.names, status: 'pending', nextRunAt: { to: new Date(now()) } },
    { limit: 1_000, sort: { nextRunAt: 1 } },
  );
  const ids = new Set(due.items.map(({ id }) => id));
  const those = { ...surroundings(options), admits: (id: string) => ids.has(id) };
  return tallied(mill, () => working(mill, () => untilIdle(mill, timeoutMs, those)));
}

const surroundings = ({ clock }: MillDrainOptions): typeof ORDINARY =>
  clock === undefined ? ORDINARY : { ...ORDINARY, now: () => clock.now() };

async function working(mill: AnyMill, work: () => Promise<void>): Promise<void> {
  if (mill.started) return work();
  await mill.start();
  try {
    await work();
  } finally {
    await mill.stop();
  }
}
