import type { ReactiveName } from '../../contenders/reactive/contender.js';
import { tried, type Bench } from '../../lib/bench.js';
import { Child } from '../../lib/child.js';
import { sleep } from '../../lib/clock.js';
import { described, sum, total, type Commands } from '../../lib/commands.js';
import { round } from '../../lib/stats.js';

const ENTRIES: readonly { contender: ReactiveName; instances: number }[] = [
  { contender: 'tidemill', instances: 1 },
  { contender: 'tidemill', instances: 5 },
  { contender: 'mongodash', instances: 1 },
  { contender: 'mongodash', instances: 5 },
];

async function counted(
  bench: Bench,
  { contender, instances }: (typeof ENTRIES)[number],
  database: string,
): Promise<Commands> {
  const settleMs = bench.quick ? 5_000 : 20_000;
  const watchMs = bench.quick ? 10_000 : 30_000;
  const assignment = { uri: bench.uri, contender, variant: 'default', database, monitor: true, watchMs };
  const children = Array.from(
    { length: instances },
    () => new Child({ ...assignment, task: 'reactive:idle' }),
  );
  try {
    await Promise.all(children.map((child) => child.hear('ready')));
    await sleep(settleMs);
    for (const child of children) child.say('go');
    const results = await Promise.all(
      children.map(async (child) => (await child.hear<{ value: Commands }>('result')).value),
    );
    return sum(results);
  } finally {
    for (const child of children) child.kill();
  }
}

/** Counts the commands of idle instances. All contenders run at once, since idle ones do not disturb each other. */
export async function reactiveIdle(bench: Bench): Promise<void> {
  const section = 'reactive idle';
  const seconds = bench.quick ? 10 : 30;
  await Promise.all(
    ENTRIES.filter(({ contender }) => bench.wants(contender)).map(async (entry) => {
      const { contender, instances } = entry;
      const variant = 'default';
      await tried(bench, { section, contender, variant }, async () => {
        const commands = await bench.within((database) => counted(bench, entry, database));
        const figures = {
          instances,
          'commands/s': round(total(commands) / seconds, 2),
          'commands/s of each': round(total(commands) / seconds / instances, 2),
          [`in ${seconds} s`]: described(commands, false),
        };
        bench.add({ section, contender, variant, figures, runs: [commands] });
      });
    }),
  );
}
