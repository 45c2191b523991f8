import type { ReactiveName } from '../../contenders/reactive/contender.js';
import { tried, type Bench } from '../../lib/bench.js';
import { nanos, sinceMs, sleep } from '../../lib/clock.js';
import { described, total } from '../../lib/commands.js';
import { cpuSeconds } from '../../lib/cpu.js';
import { median, round } from '../../lib/stats.js';
import { ended, instance, Scene, when } from './instance.js';
import type { Reacted } from './tasks.js';

interface Entry {
  readonly contender: ReactiveName;
  readonly variant: string;
  readonly documents: number;
  readonly fetch: boolean;
}

const PLAIN: readonly Entry[] = [
  { contender: 'raw', variant: 'chain500', documents: 10_000, fetch: false },
  { contender: 'raw', variant: 'chain1000', documents: 10_000, fetch: false },
  { contender: 'raw', variant: 'stream1000', documents: 10_000, fetch: false },
  { contender: 'tidemill', variant: 'default', documents: 10_000, fetch: false },
  { contender: 'tidemill', variant: 'tuned100', documents: 10_000, fetch: false },
  { contender: 'mongodash', variant: 'tuned100', documents: 3_000, fetch: false },
];

const FETCHING: readonly Entry[] = PLAIN.filter(({ contender }) => contender !== 'raw').map((entry) => ({
  ...entry,
  fetch: true,
}));

const LIMIT_MS = 120_000;

interface Run extends Reacted {
  readonly perSecond: number;
  readonly seconds: number;
  readonly writingSeconds: number;
  readonly mongodCpuSeconds: number;
  readonly timedOut: boolean;
}

/** From the first write until the last task is recorded as completed. */
async function run(bench: Bench, entry: Entry, database: string, monitor: boolean): Promise<Run> {
  const documents = bench.quick ? Math.ceil(entry.documents / 5) : entry.documents;
  const child = await instance(bench, { ...entry, documents, database, monitor, debounce: 0 });
  try {
    const scene = await Scene.of(bench, database, entry.contender);
    let handled = 0;
    child.on('count', ({ count }) => (handled = Number(count)));
    await sleep(1_000);
    await bench.settle();
    const mongodBefore = cpuSeconds(bench.serverPid);
    child.say('go');
    const began = nanos();
    // A contender with `drive` writes the documents itself.
    const driven = entry.variant.startsWith('chain');
    if (!driven) await scene.write(documents);
    const writingSeconds = round(sinceMs(began) / 1_000, 2);
    await when(() => handled >= documents, LIMIT_MS);
    const recorded = handled < documents ? undefined : await when(() => scene.finished(documents), LIMIT_MS);
    const seconds = sinceMs(began, recorded) / 1_000;
    const mongodCpuSeconds = round(cpuSeconds(bench.serverPid) - mongodBefore, 2);
    const { started, ...reacted } = await ended(child);
    return {
      ...reacted,
      started: {},
      perSecond: round(reacted.documents / seconds),
      seconds: round(seconds, 2),
      writingSeconds,
      mongodCpuSeconds,
      timedOut: recorded === undefined,
    };
  } finally {
    child.kill();
  }
}

const of = (runs: readonly Run[], figure: (run: Run) => number): number => median(runs.map(figure));

function figures(runs: readonly Run[], monitored: Run | undefined): Record<string, number | string> {
  return {
    'tasks/s': of(runs, (one) => one.perSecond),
    lowest: Math.min(...runs.map((one) => one.perSecond)),
    highest: Math.max(...runs.map((one) => one.perSecond)),
    tasks: runs[0]!.documents,
    'handled twice': Math.max(...runs.map((one) => one.runs - one.documents)),
    'first handler ms': of(runs, (one) => one.firstMs ?? NaN),
    'worker CPU µs/task': round(of(runs, (one) => (one.cpuSeconds / one.runs) * 1e6)),
    'mongod CPU µs/task': round(of(runs, (one) => (one.mongodCpuSeconds / one.runs) * 1e6)),
    ...(monitored === undefined
      ? {}
      : { 'commands/task': round(total(monitored.commands) / monitored.runs, 3) }),
    note: runs.some((one) => one.timedOut) ? 'did not finish in two minutes' : '',
  };
}

/** From changes to handled tasks. Commands are counted in a run of their own, because monitoring costs time. */
export async function reactiveThroughput(bench: Bench): Promise<void> {
  for (const [section, entries] of [
    ['reactive tasks', PLAIN],
    ['reactive tasks, with getDocument', FETCHING],
  ] as const) {
    const wanted = entries.filter(({ contender }) => bench.wants(contender));
    const runs = new Map(wanted.map((entry) => [entry, [] as Run[]]));
    const counted = new Map<Entry, Run>();
    const failed = new Set<Entry>();
    for (let turn = 0; turn <= bench.rounds; turn += 1) {
      for (const entry of wanted) {
        const monitor = turn === bench.rounds;
        if (failed.has(entry)) continue;
        const { contender, variant } = entry;
        const result = await tried(bench, { section, contender, variant }, () =>
          bench.within((database) => run(bench, entry, database, monitor)),
        );
        if (result === undefined) failed.add(entry);
        else if (monitor) counted.set(entry, result);
        else runs.get(entry)?.push(result);
      }
    }
    for (const [entry, results] of runs) {
      if (results.length === 0) continue;
      const monitored = counted.get(entry);
      const { contender, variant } = entry;
      bench.add({
        section,
        contender,
        variant,
        figures: figures(results, monitored),
        runs: [...results, { monitored: monitored && described(monitored.commands) }],
      });
    }
  }
}
