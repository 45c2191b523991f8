import type { PostgresName } from '../../contenders/postgres/contender.js';
import { tried } from '../../lib/bench.js';
import { inChild } from '../../lib/child.js';
import { across, delayFigures, type Sent, type Started } from '../latency.js';
import type { PostgresBench } from './bench.js';

const ENTRIES: readonly { readonly contender: PostgresName; readonly variant: string }[] = [
  { contender: 'raw', variant: 'notify' },
  { contender: 'tidemill', variant: 'default' },
  { contender: 'pg-boss', variant: 'batch500' },
  { contender: 'graphile-worker', variant: 'local500' },
  { contender: 'graphile-worker', variant: 'jobs24' },
  { contender: 'bullmq', variant: 'jobs100' },
];

/** One job every 100 to 200 ms: everybody is idle when it comes. */
export async function latency(bench: PostgresBench): Promise<void> {
  for (const { contender, variant } of ENTRIES) {
    if (!bench.wants(contender)) continue;
    const important = contender !== 'raw' && contender !== 'bullmq';
    const samples = bench.quick ? 30 : important ? 150 : 60;
    const base = { uri: bench.uri, contender, variant };
    for (const section of ['latency, two processes', 'latency, one process']) {
      await tried(bench, { section, contender, variant }, async () => {
        const { sent, started } = await bench.within((database) =>
          section.endsWith('two processes')
            ? across({ ...base, database }, samples)
            : inChild<{ sent: Sent; started: Started }>({ ...base, database, task: 'alone', samples }),
        );
        bench.add({ section, contender, variant, ...delayFigures(sent, started) });
      });
    }
  }
}
