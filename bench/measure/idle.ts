import type { ContenderName } from '../contenders/contender.js';
import { tried, type Bench } from '../lib/bench.js';
import { inChild } from '../lib/child.js';

interface Entry {
  readonly contender: ContenderName;
  readonly variant: string;
}

const ENTRIES: readonly Entry[] = [
  { contender: 'raw', variant: 'stream' },
  { contender: 'tidemill', variant: 'default' },
  { contender: 'agenda', variant: 'default' },
  { contender: 'agenda', variant: 'poll' },
  { contender: 'agenda', variant: 'stream' },
  { contender: 'pulse', variant: 'best' },
  { contender: 'mongodash', variant: 'reactive' },
  { contender: 'mongodash', variant: 'cron' },
  { contender: 'mongodb-cron', variant: 'loops1' },
];

interface Counted {
  readonly perSecond: number;
  readonly commands: Readonly<Record<string, number>>;
}

/**
 * Counts the commands of an idle worker with the driver's command monitoring. All contenders run at once, since idle
 * ones do not disturb each other.
 */
export async function idleOf(bench: Bench, section: string, entries: readonly Entry[]): Promise<void> {
  const settleMs = bench.quick ? 5_000 : 20_000;
  const watchMs = bench.quick ? 10_000 : 30_000;
  await Promise.all(
    entries
      .filter(({ contender }) => bench.wants(contender))
      .map(({ contender, variant }) =>
        tried(bench, { section, contender, variant }, async () => {
          const counted = await bench.within((database) =>
            inChild<Counted>({
              uri: bench.uri,
              contender,
              variant,
              database,
              task: 'idle',
              monitor: true,
              settleMs,
              watchMs,
              jobs: 1,
            }),
          );
          const commands = Object.entries(counted.commands).map(([name, count]) => `${name} ${count}`);
          const figures = {
            'commands/s': counted.perSecond,
            [`in ${watchMs / 1_000} s`]: commands.join(', '),
          };
          bench.add({ section, contender, variant, figures, runs: [counted] });
        }),
      ),
  );
}

export const idle = (bench: Bench): Promise<void> => idleOf(bench, 'idle', ENTRIES);
