import { tried } from '../../lib/bench.js';
import { inChild } from '../../lib/child.js';
import { FINISHED } from '../../lib/rows.js';
import { median, round } from '../../lib/stats.js';
import type { ProcessingResult } from '../processing.js';
import { drain, type PostgresBench } from './bench.js';

const OTHERS = 500_000;
const ENTRY = { contender: 'tidemill', variant: 'tuned100', jobs: 60_000 } as const;

/** The same backlog in an otherwise empty table, and in one with half a million finished jobs. */
export async function finishedRows(bench: PostgresBench): Promise<void> {
  const section = '500,000 finished rows';
  const { contender, variant } = ENTRY;
  if (!bench.wants(contender)) return;
  await tried(bench, { section, contender, variant }, () =>
    bench.within((empty) =>
      bench.within(async (full) => {
        await prepare(bench, full);
        const runs: { empty: ProcessingResult[]; full: ProcessingResult[] } = { empty: [], full: [] };
        for (let turn = 0; turn < bench.rounds * 2; turn += 1) {
          // Each goes first equally often.
          const order = turn % 2 === 0 ? (['empty', 'full'] as const) : (['full', 'empty'] as const);
          for (const which of order) runs[which].push(await oneTurn(bench, { empty, full }[which]));
        }
        const rate = (results: readonly ProcessingResult[]): number =>
          median(results.map((run) => run.perSecond));
        const ratios = runs.full.map((run, turn) => run.perSecond / runs.empty[turn]!.perSecond);
        const figures = {
          'empty jobs/s': rate(runs.empty),
          'full jobs/s': rate(runs.full),
          'full / empty': round(median(ratios), 2),
          'server CPU µs/job, empty': cost(runs.empty),
          'server CPU µs/job, full': cost(runs.full),
        };
        bench.add({ section, contender, variant, figures, runs: [runs] });
      }),
    ),
  );
}

const cost = (runs: readonly ProcessingResult[]): number =>
  round(median(runs.map((run) => (run.serverCpuSeconds / run.handled) * 1e6)));

async function prepare(bench: PostgresBench, database: string): Promise<void> {
  const { uri } = bench;
  // One call of the library creates the schema.
  await inChild({ uri, database, ...ENTRY, task: 'fill', jobs: 0 });
  await bench.query(database, FINISHED, [bench.quick ? OTHERS / 20 : OTHERS]);
}

/** Removes the jobs of the turn afterwards, so that both tables keep their sizes. */
async function oneTurn(bench: PostgresBench, database: string): Promise<ProcessingResult> {
  const result = await drain(bench, ENTRY, database);
  await bench.query(database, `delete from tidemill.jobs where id not like '%finished'`);
  return result;
}
