import { median, round } from '../../lib/stats.js';
import type { ProcessingResult } from '../processing.js';
import { rounds, type Entry, type PostgresBench } from './bench.js';

const ONE: readonly Entry[] = [
  { contender: 'raw', variant: 'all100', jobs: 60_000 },
  { contender: 'raw', variant: 'all500', jobs: 60_000 },
  { contender: 'raw', variant: 'claim100', jobs: 60_000 },
  { contender: 'raw', variant: 'claim500', jobs: 60_000 },
  { contender: 'raw', variant: 'claim500 deletes', jobs: 60_000 },
  { contender: 'tidemill', variant: 'default', jobs: 60_000 },
  { contender: 'tidemill', variant: 'tuned100', jobs: 60_000 },
  { contender: 'tidemill', variant: 'tuned500', jobs: 60_000 },
  { contender: 'tidemill', variant: 'tuned1000', jobs: 60_000 },
  { contender: 'tidemill', variant: 'default deletes', jobs: 60_000 },
  { contender: 'tidemill', variant: 'tuned100 deletes', jobs: 60_000 },
  { contender: 'tidemill', variant: 'tuned500 deletes', jobs: 60_000 },
  { contender: 'tidemill', variant: 'tuned1000 deletes', jobs: 60_000 },
  { contender: 'pg-boss', variant: 'batch500', jobs: 60_000 },
  { contender: 'pg-boss', variant: 'twice500', jobs: 60_000 },
  { contender: 'pg-boss', variant: 'default', jobs: 5 },
  { contender: 'graphile-worker', variant: 'local500', jobs: 60_000 },
  { contender: 'graphile-worker', variant: 'local1000', jobs: 60_000 },
  { contender: 'graphile-worker', variant: 'default', jobs: 2_000 },
  { contender: 'bullmq', variant: 'jobs100', jobs: 4_000 },
  { contender: 'bullmq', variant: 'default', jobs: 1_000 },
];

const SEVERAL: readonly Entry[] = [
  ...['default', 'tuned100', 'tuned500 deletes'].flatMap((variant) =>
    (variant.endsWith('deletes') ? [1, 2] : [1, 2, 4]).map((processes) => ({
      contender: 'tidemill' as const,
      variant,
      jobs: 60_000,
      processes,
    })),
  ),
  { contender: 'pg-boss', variant: 'batch500', jobs: 60_000, processes: 2 },
  { contender: 'graphile-worker', variant: 'local500', jobs: 60_000, processes: 2 },
];

const of = (runs: readonly ProcessingResult[], figure: (run: ProcessingResult) => number): number =>
  median(runs.map(figure));

export async function throughput(bench: PostgresBench): Promise<void> {
  const section = 'processing';
  for (const [{ contender, variant }, runs] of await rounds(bench, section, ONE)) {
    const figures = {
      'jobs/s': of(runs, (run) => run.perSecond),
      lowest: Math.min(...runs.map((run) => run.perSecond)),
      highest: Math.max(...runs.map((run) => run.perSecond)),
      jobs: runs[0]!.handled,
      'first handler ms': of(runs, (run) => run.firstMs ?? NaN),
      'worker CPU µs/job': round(of(runs, (run) => (run.workerCpuSeconds / run.handled) * 1e6)),
      'server CPU µs/job': round(of(runs, (run) => (run.serverCpuSeconds / run.handled) * 1e6)),
      note: runs.some((run) => run.timedOut) ? 'did not finish in two minutes' : '',
    };
    bench.add({ section, contender, variant, figures, runs });
  }
}

interface Claims {
  readonly total: number;
  readonly empty: number;
  readonly short: number;
}

/** Only Tidemill counts its claims. */
function claimsOf(runs: readonly ProcessingResult[]): Record<string, number> {
  const all = runs.map((run) => run.extra.flatMap(({ claims }) => (claims ? [claims as Claims] : [])));
  if (all.some((claims) => claims.length === 0)) return {};
  const sum = (claims: readonly Claims[], key: keyof Claims): number =>
    claims.reduce((total, one) => total + one[key], 0);
  const wasted = all.map(
    (claims) => ((sum(claims, 'empty') + sum(claims, 'short')) / sum(claims, 'total')) * 100,
  );
  const each = all.map((claims, at) => runs[at]!.handled / sum(claims, 'total'));
  return {
    claims: median(all.map((claims) => sum(claims, 'total'))),
    'jobs/claim': round(median(each)),
    'wasted %': round(median(wasted), 1),
  };
}

export async function severalProcesses(bench: PostgresBench): Promise<void> {
  const section = 'several processes';
  for (const [{ contender, variant, processes = 1 }, runs] of await rounds(bench, section, SEVERAL)) {
    const figures = {
      processes,
      'jobs/s': of(runs, (run) => run.perSecond),
      'handled twice': of(runs, (run) => run.handled) - runs[0]!.jobs,
      ...claimsOf(runs),
    };
    bench.add({ section, contender, variant, figures, runs });
  }
}
