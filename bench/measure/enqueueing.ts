import type { ContenderName } from '../contenders/contender.js';
import { tried, type Bench } from '../lib/bench.js';
import { inChild } from '../lib/child.js';
import { median } from '../lib/stats.js';

const ENTRIES: readonly { readonly contender: ContenderName; readonly variant: string }[] = [
  { contender: 'raw', variant: 'all500' },
  { contender: 'raw', variant: 'claim500' },
  { contender: 'tidemill', variant: 'default' },
  { contender: 'agenda', variant: 'poll' },
  { contender: 'pulse', variant: 'best' },
  { contender: 'mongodash', variant: 'reactive' },
  { contender: 'mongodb-cron', variant: 'loops1' },
];

const IN_FLIGHT = 32;
const BATCH = 1_000;

interface Measured {
  readonly perSecond: number | null;
}

/** Single calls, one after the other and 32 in flight; and the bulk call, 1,000 jobs at a time. No worker runs meanwhile. */
export async function enqueueing(bench: Bench): Promise<void> {
  const section = 'enqueueing';
  const singles = bench.quick ? 1_000 : 8_000;
  const many = bench.quick ? 5_000 : 50_000;
  const serials = bench.quick ? 300 : 1_500;
  const runs = new Map(
    ENTRIES.map((entry) => [
      entry,
      { serial: [] as Measured[], single: [] as Measured[], many: [] as Measured[] },
    ]),
  );
  for (let turn = 0; turn < bench.rounds; turn += 1) {
    for (const [entry, measured] of runs) {
      if (!bench.wants(entry.contender)) continue;
      const base = { uri: bench.uri, ...entry };
      await tried(bench, { section, ...entry }, async () => {
        measured.serial.push(
          await bench.within((database) =>
            inChild<Measured>({ ...base, database, task: 'enqueue', jobs: serials, inFlight: 1 }),
          ),
        );
        measured.single.push(
          await bench.within((database) =>
            inChild<Measured>({ ...base, database, task: 'enqueue', jobs: singles, inFlight: IN_FLIGHT }),
          ),
        );
        measured.many.push(
          await bench.within((database) =>
            inChild<Measured>({ ...base, database, task: 'enqueueMany', jobs: many, batch: BATCH }),
          ),
        );
      });
    }
  }
  for (const [entry, measured] of runs) {
    if (measured.many.length === 0) continue;
    const rate = (values: readonly Measured[]): number | null =>
      values.some(({ perSecond }) => perSecond === null)
        ? null
        : median(values.map(({ perSecond }) => perSecond ?? NaN));
    const figures = {
      'one after the other, jobs/s': rate(measured.serial),
      'single, 32 in flight, jobs/s': rate(measured.single),
      'many, 1,000 a call, jobs/s': rate(measured.many),
    };
    bench.add({ section, ...entry, figures, runs: [measured] });
  }
}
