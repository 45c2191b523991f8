import type { PostgresName } from '../../contenders/postgres/contender.js';
import { tried } from '../../lib/bench.js';
import { inChild } from '../../lib/child.js';
import type { PostgresBench } from './bench.js';

const ENTRIES: readonly { readonly contender: PostgresName; readonly variant: string }[] = [
  { contender: 'tidemill', variant: 'default' },
  { contender: 'pg-boss', variant: 'default' },
  { contender: 'pg-boss', variant: 'batch500' },
  { contender: 'graphile-worker', variant: 'default' },
  { contender: 'graphile-worker', variant: 'local500' },
  { contender: 'bullmq', variant: 'default' },
  { contender: 'bullmq', variant: 'jobs100' },
];

interface Counted {
  readonly perSecond: number;
  readonly commands: Readonly<Record<string, number>>;
}

/**
 * Counts the statements of an idle worker in its driver. All contenders run at once, since idle ones do not disturb
 * each other.
 */
export async function idle(bench: PostgresBench): Promise<void> {
  const section = 'idle';
  const [settleMs, watchMs] = bench.quick ? [5_000, 10_000] : [20_000, 60_000];
  await Promise.all(
    ENTRIES.filter(({ contender }) => bench.wants(contender)).map(({ contender, variant }) =>
      tried(bench, { section, contender, variant }, async () => {
        const { uri } = bench;
        const counted = await bench.within((database) =>
          inChild<Counted>({ uri, contender, variant, database, task: 'idle', settleMs, watchMs }),
        );
        const kinds = Object.entries(counted.commands).map(([kind, count]) => `${kind} ${count}`);
        const figures = { 'statements/s': counted.perSecond, [`in ${watchMs / 1_000} s`]: kinds.join(', ') };
        bench.add({ section, contender, variant, figures, runs: [counted] });
      }),
    ),
  );
}
