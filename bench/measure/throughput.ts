import type { ContenderName } from '../contenders/contender.js';
import { tried, type Bench } from '../lib/bench.js';
import { median, round } from '../lib/stats.js';
import { processing, type ProcessingResult } from './processing.js';

export interface Entry {
  readonly contender: ContenderName;
  readonly variant: string;
  readonly jobs: number;
  readonly processes?: number;
}

const ONE: readonly Entry[] = [
  { contender: 'raw', variant: 'all100', jobs: 30_000 },
  { contender: 'raw', variant: 'all500', jobs: 30_000 },
  { contender: 'raw', variant: 'claim100', jobs: 30_000 },
  { contender: 'raw', variant: 'claim500', jobs: 30_000 },
  { contender: 'tidemill', variant: 'default', jobs: 30_000 },
  { contender: 'tidemill', variant: 'tuned100', jobs: 30_000 },
  { contender: 'tidemill', variant: 'tuned500', jobs: 30_000 },
  { contender: 'agenda', variant: 'poll', jobs: 4_000 },
  { contender: 'agenda', variant: 'stream', jobs: 1_000 },
  { contender: 'pulse', variant: 'best', jobs: 4_000 },
  { contender: 'mongodash', variant: 'reactive', jobs: 3_000 },
  { contender: 'mongodash', variant: 'cron', jobs: 500 },
  { contender: 'mongodb-cron', variant: 'loops1', jobs: 1_000 },
  { contender: 'mongodb-cron', variant: 'loops100', jobs: 6_000 },
];

const SEVERAL: readonly Entry[] = [
  { variant: 'default', jobs: 40_000 },
  { variant: 'tuned100', jobs: 40_000 },
  { variant: 'tuned100', jobs: 100_000 },
].flatMap((row) => [1, 2, 4].map((processes) => ({ contender: 'tidemill' as const, ...row, processes })));

/** Runs every entry once per round, so that a busy minute of the machine affects all of them alike. */
export async function rounds(
  bench: Bench,
  section: string,
  entries: readonly Entry[],
): Promise<Map<Entry, ProcessingResult[]>> {
  const results = new Map<Entry, ProcessingResult[]>();
  const failed = new Set<Entry>();
  for (let turn = 0; turn < bench.rounds; turn += 1) {
    for (const entry of entries) {
      if (!bench.wants(entry.contender) || failed.has(entry)) continue;
      const { contender, variant, processes = 1 } = entry;
      const jobs = bench.quick ? Math.ceil(entry.jobs / 10) : entry.jobs;
      const { uri, serverPid, settle } = bench;
      const run = (database: string): Promise<ProcessingResult> =>
        processing({ uri, database, contender, variant, jobs, processes, serverPid, settle });
      const result = await tried(bench, { section, contender, variant }, () => bench.within(run));
      if (result === undefined) failed.add(entry);
      else results.set(entry, [...(results.get(entry) ?? []), result]);
    }
  }
  return results;
}

export const of = (
  results: readonly ProcessingResult[],
  figure: (result: ProcessingResult) => number,
): number => median(results.map(figure));

export async function throughput(bench: Bench): Promise<void> {
  const section = 'processing';
  for (const [{ contender, variant }, runs] of await rounds(bench, section, ONE)) {
    const jobs = runs[0]!.handled;
    const figures = {
      'jobs/s': of(runs, (run) => run.perSecond),
      lowest: Math.min(...runs.map((run) => run.perSecond)),
      highest: Math.max(...runs.map((run) => run.perSecond)),
      jobs,
      'worker CPU µs/job': round(of(runs, (run) => (run.workerCpuSeconds / run.handled) * 1e6)),
      'mongod CPU µs/job': round(of(runs, (run) => (run.serverCpuSeconds / run.handled) * 1e6)),
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

const claimsOf = (run: ProcessingResult): Claims =>
  run.extra
    .map((extra) => extra['claims'] as Claims)
    .reduce((sum, one) => ({
      total: sum.total + one.total,
      empty: sum.empty + one.empty,
      short: sum.short + one.short,
    }));

export async function severalProcesses(bench: Bench): Promise<void> {
  const section = 'several processes';
  for (const [{ contender, variant, jobs, processes }, runs] of await rounds(bench, section, SEVERAL)) {
    const wasted = (run: ProcessingResult): number => {
      const { total, empty, short } = claimsOf(run);
      return ((empty + short) / total) * 100;
    };
    const figures = {
      jobs,
      processes: processes ?? 1,
      'jobs/s': of(runs, (run) => run.perSecond),
      claims: of(runs, (run) => claimsOf(run).total),
      empty: of(runs, (run) => claimsOf(run).empty),
      short: of(runs, (run) => claimsOf(run).short),
      'wasted %': round(of(runs, wasted), 1),
      'handled twice': of(runs, (run) => run.handled) - runs[0]!.jobs,
    };
    bench.add({ section, contender, variant, figures, runs });
  }
}

/** The start of the first handler of a backlog of 10,000, and whether the rate holds to the end. */
export async function backlog(bench: Bench): Promise<void> {
  const section = 'backlog of 10,000';
  const entries: Entry[] = ['default', 'tuned100'].map((variant) => ({
    contender: 'tidemill',
    variant,
    // A quick run divides this by ten.
    jobs: bench.quick ? 100_000 : 10_000,
  }));
  for (const [{ contender, variant }, runs] of await rounds(bench, section, entries)) {
    const tenths = Array.from({ length: 10 }, (_, at) => of(runs, (run) => run.tenths[at] ?? NaN));
    const figures = {
      'first handler ms': of(runs, (run) => run.firstMs ?? NaN),
      'jobs/s by tenth': tenths.join(' '),
      'second half / first half': round(sum(tenths.slice(5)) / sum(tenths.slice(0, 5)), 2),
    };
    bench.add({ section, contender, variant, figures, runs });
  }
}

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);
