import { loadOpened, loadRun } from '../../src/documents/parts.js';
import { loadHolding } from '../../src/locks/parts.js';
import { loadViews } from '../../src/metrics/monitor.js';
import { loadManagers, loadRuntime } from '../../src/mill/parts.js';
import type { Fault } from './faults.js';
import { Random } from './random.js';
import { Scheduler } from './scheduler.js';
import { seal } from './seal.js';
import { World } from './world.js';

export interface Simulation {
  readonly seed: number;
  /** How long work comes and faults happen, in virtual time. */
  readonly forMs: number;
  /** Kinds of faults that are switched off. Default: those that are off. */
  readonly without?: readonly Fault[];
  readonly print?: (line: string) => void;
}

export interface Verdict {
  readonly seed: number;
  readonly violations: readonly string[];
  /** Equal for two runs in which the same happened. */
  readonly hash: string;
  readonly counts: ReadonlyMap<string, number>;
  /** Virtual time from the end of the faults until everything was done. */
  readonly healedMs: number;
  readonly last: readonly string[];
}

const START = Date.UTC(2026, 0, 1);
/** Once faults have ended, everything must be done within this time. */
const BOUND_MS = 120_000;

/** One run: everything in it follows from its seed. */
export async function simulate({ seed, forMs, without = [], print }: Simulation): Promise<Verdict> {
  const random = new Random(seed);
  const scheduler = new Scheduler(START);
  scheduler.trace.print = print;
  // The loader of modules takes turns of the event loop that no seed decides.
  await Promise.all([loadHolding(), loadManagers(), loadRuntime(), loadOpened(), loadRun(), loadViews()]);
  const unseal = seal(random, scheduler);
  const strays: unknown[] = [];
  const stray = (reason: unknown): void => void strays.push(reason);
  process.on('unhandledRejection', stray);
  try {
    const world = new World({ scheduler, random, seed, without });
    const { judge } = world;
    await world.store.loadParts();
    world.begin(forMs);
    await scheduler.run(START + forMs, () => judge.violations.length > 0);
    world.heal();
    const healedAt = scheduler.now;
    await scheduler.run(healedAt + BOUND_MS, () => world.isDone || judge.violations.length > 0);
    if (judge.violations.length === 0)
      for (const left of world.unfinished())
        judge.violated(`${String(BOUND_MS)} ms after the last fault: ${left}`);
    for (const reason of strays) judge.violated(`an unhandled rejection: ${String(reason)}`);
    return {
      seed,
      violations: judge.violations,
      hash: scheduler.trace.hash,
      counts: judge.counts,
      healedMs: scheduler.now - healedAt,
      last: scheduler.trace.last,
    };
  } finally {
    process.off('unhandledRejection', stray);
    unseal();
  }
}
