import type { Collection } from 'mongodb';
import { tried, type Bench } from '../lib/bench.js';
import { inChild } from '../lib/child.js';
import { documents } from '../lib/documents.js';
import { median, round } from '../lib/stats.js';
import { processing, type ProcessingResult } from './processing.js';

const JOBS = 30_000;
const OTHERS = 200_000;

/** The same backlog in an otherwise empty collection, and in one with many future and many finished jobs. */
export async function fullCollection(bench: Bench): Promise<void> {
  const section = 'full collection';
  const row = { section, contender: 'tidemill', variant: 'tuned100' } as const;
  if (!bench.wants(row.contender)) return;
  await tried(bench, row, () =>
    bench.within((empty) =>
      bench.within(async (full) => {
        await prepare(bench, full);
        const runs: { empty: ProcessingResult[]; full: ProcessingResult[] } = { empty: [], full: [] };
        for (let turn = 0; turn < bench.rounds * 2; turn += 1) {
          // Each goes first equally often.
          const order = turn % 2 === 0 ? (['empty', 'full'] as const) : (['full', 'empty'] as const);
          for (const which of order) runs[which].push(await drain(bench, { empty, full }[which]));
        }
        const rate = (results: readonly ProcessingResult[]): number =>
          median(results.map((run) => run.perSecond));
        const ratios = runs.full.map((run, turn) => run.perSecond / runs.empty[turn]!.perSecond);
        const figures = {
          'empty jobs/s': rate(runs.empty),
          'full jobs/s': rate(runs.full),
          'full / empty': round(median(ratios), 2),
          'mongod CPU µs/job, empty': cost(runs.empty),
          'mongod CPU µs/job, full': cost(runs.full),
        };
        bench.add({ ...row, figures, runs: [runs] });
      }),
    ),
  );
}

const cost = (runs: readonly ProcessingResult[]): number =>
  round(median(runs.map((run) => (run.serverCpuSeconds / run.handled) * 1e6)));

const jobsOf = (bench: Bench, database: string): Collection =>
  bench.client.db(database).collection('tidemill_jobs');

async function prepare(bench: Bench, database: string): Promise<void> {
  // One call of the library creates the collection and its indexes.
  await inChild({
    uri: bench.uri,
    database,
    contender: 'tidemill',
    variant: 'default',
    task: 'fill',
    jobs: 0,
  });
  for (const kind of ['future', 'finished'] as const) {
    for (const batch of documents(bench.quick ? OTHERS / 20 : OTHERS, kind))
      await jobsOf(bench, database).insertMany(batch);
  }
}

/** Removes the finished jobs afterwards, so that both collections keep their sizes. */
async function drain(bench: Bench, database: string): Promise<ProcessingResult> {
  const { uri, serverPid, settle } = bench;
  const jobs = bench.quick ? JOBS / 10 : JOBS;
  const since = new Date();
  const result = await processing({
    uri,
    database,
    contender: 'tidemill',
    variant: 'tuned100',
    jobs,
    processes: 1,
    serverPid,
    settle,
  });
  await jobsOf(bench, database).deleteMany({ status: 'completed', createdAt: { $gte: since } });
  return result;
}
