import type { PostgresName } from '../../contenders/postgres/contender.js';
import { tried } from '../../lib/bench.js';
import { inChild } from '../../lib/child.js';
import { median } from '../../lib/stats.js';
import { settle, type PostgresBench } from './bench.js';

const ENTRIES: readonly {
  readonly contender: PostgresName;
  readonly variant: string;
  readonly many: number;
}[] = [
  { contender: 'raw', variant: 'all500', many: 50_000 },
  { contender: 'raw', variant: 'claim500', many: 50_000 },
  { contender: 'tidemill', variant: 'default', many: 50_000 },
  { contender: 'pg-boss', variant: 'batch500', many: 50_000 },
  { contender: 'pg-boss', variant: 'default', many: 50_000 },
  { contender: 'graphile-worker', variant: 'local500', many: 50_000 },
  { contender: 'bullmq', variant: 'jobs100', many: 10_000 },
];

const IN_FLIGHT = 32;
const BATCH = 1_000;

interface Measured {
  readonly perSecond: number;
}

/** Single calls, one after the other and 32 in flight; and the bulk call, 1,000 jobs at a time. No worker runs meanwhile. */
export async function enqueueing(bench: PostgresBench): Promise<void> {
  const section = 'enqueueing';
  const jobs = bench.quick ? 1_000 : 8_000;
  const runs = new Map(
    ENTRIES.map((entry) => [
      entry,
      { serial: [] as Measured[], single: [] as Measured[], many: [] as Measured[] },
    ]),
  );
  const measured = (assignment: Parameters<typeof inChild>[0]): Promise<Measured> =>
    bench.within(async (database) => {
      await settle(bench, database);
      return inChild<Measured>({ ...assignment, database });
    });
  for (let turn = 0; turn < bench.rounds; turn += 1) {
    for (const [{ many: count, ...entry }, results] of runs) {
      if (!bench.wants(entry.contender)) continue;
      const base = { uri: bench.uri, database: '', ...entry };
      const many = bench.quick ? count / 10 : count;
      await tried(bench, { section, ...entry }, async () => {
        results.serial.push(await measured({ ...base, task: 'enqueue', jobs: jobs / 5, inFlight: 1 }));
        results.single.push(await measured({ ...base, task: 'enqueue', jobs, inFlight: IN_FLIGHT }));
        results.many.push(await measured({ ...base, task: 'enqueueMany', jobs: many, batch: BATCH }));
      });
    }
  }
  const rate = (values: readonly Measured[]): number => median(values.map(({ perSecond }) => perSecond));
  for (const [{ contender, variant }, results] of runs) {
    if (results.many.length === 0) continue;
    const figures = {
      'one after the other, jobs/s': rate(results.serial),
      'single, 32 in flight, jobs/s': rate(results.single),
      'many, 1,000 a call, jobs/s': rate(results.many),
    };
    bench.add({ section, contender, variant, figures, runs: [results] });
  }
}
