import type { Clock } from '../core/clock.js';
import { refuseFakeTimers } from './fake-timers.js';
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
  /** The clock of the mill's memory store, if it has its own. Default: the system clock. */
  readonly clock?: Clock;
}

/**
 * Waits until no job of this mill runs or is due, on any store. A mill that has not started is started for this, and
 * stopped again. Jobs that are due later, retries included, stay pending.
 */
export async function drain(mill: AnyMill, options: MillDrainOptions = {}): Promise<Drained> {
  if (mill instanceof TestMill) return mill.drain(options);
  const timeoutMs = timeoutOf('drain', options, ['clock']);
  refuseFakeTimers('drain');
  return tallied(mill, () => working(mill, () => untilIdle(mill, timeoutMs, surroundings(options))));
}

/**
 * Like `drain`, but waits only for jobs that are due at the time of the call, the first 1,000 of them. Other jobs that
 * come due meanwhile may run as well, but are not waited for; a `TestMill` does not run them.
 */
export async function runDue(mill: AnyMill, options: MillDrainOptions = {}): Promise<Drained> {
  if (mill instanceof TestMill) return mill.runDue(options);
  const timeoutMs = timeoutOf('runDue', options, ['clock']);
  refuseFakeTimers('runDue');
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
