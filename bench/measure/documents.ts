import type { Bench } from '../lib/bench.js';
import { round } from '../lib/stats.js';
import { idleOf } from './idle.js';
import { of, rounds, type Entry } from './throughput.js';

/** One at a time, and with concurrency. */
const ENTRIES: readonly Entry[] = [
  { contender: 'documents', variant: 'serial', jobs: 2_000 },
  { contender: 'documents', variant: 'at10', jobs: 10_000 },
  { contender: 'documents', variant: 'at100', jobs: 20_000 },
  { contender: 'mongodb-cron', variant: 'loops1', jobs: 2_000 },
  { contender: 'mongodb-cron', variant: 'loops10', jobs: 4_000 },
  { contender: 'mongodb-cron', variant: 'loops100', jobs: 6_000 },
];

/** Processes a backlog of due documents, from `start()` until the last one has no due time any more. */
export async function documentsProcessing(bench: Bench): Promise<void> {
  const section = 'documents';
  for (const [{ contender, variant }, runs] of await rounds(bench, section, ENTRIES)) {
    const figures = {
      'documents/s': of(runs, (run) => run.perSecond),
      lowest: Math.min(...runs.map((run) => run.perSecond)),
      highest: Math.max(...runs.map((run) => run.perSecond)),
      documents: runs[0]!.jobs,
      'handled twice': of(runs, (run) => run.handled) - runs[0]!.jobs,
      'worker CPU µs/document': round(of(runs, (run) => (run.workerCpuSeconds / run.handled) * 1e6)),
      'mongod CPU µs/document': round(of(runs, (run) => (run.serverCpuSeconds / run.handled) * 1e6)),
      note: runs.some((run) => run.timedOut) ? 'did not finish in two minutes' : '',
    };
    bench.add({ section, contender, variant, figures, runs });
  }
}

/** What a scheduler asks of the server while nothing is due. */
export const documentsIdle = (bench: Bench): Promise<void> =>
  idleOf(bench, 'documents, idle', [
    { contender: 'documents', variant: 'serial' },
    { contender: 'documents', variant: 'at100' },
    { contender: 'mongodb-cron', variant: 'default' },
    { contender: 'mongodb-cron', variant: 'loops1' },
  ]);
