import type { ReactiveName } from '../../contenders/reactive/contender.js';
import { tried, type Bench } from '../../lib/bench.js';
import { nanos, sinceMs, sleep } from '../../lib/clock.js';
import { described } from '../../lib/commands.js';
import { round } from '../../lib/stats.js';
import { ended, instance, Scene, when } from './instance.js';

const DOCUMENTS = 10_000;
/** Updates per document: 50,000 in all. */
const UPDATES = 5;
const BATCH = 1_000;
const LIMIT_MS = 120_000;

const ENTRIES: readonly { contender: ReactiveName; variant: string; debounce?: number }[] = [
  { contender: 'tidemill', variant: 'tuned100', debounce: 0 },
  { contender: 'tidemill', variant: 'tuned100' },
  { contender: 'mongodash', variant: 'tuned100', debounce: 0 },
  { contender: 'mongodash', variant: 'tuned100' },
];

/** Updates every document once, then every document again, and so on. */
async function burst({ source }: Scene, documents: number): Promise<void> {
  for (let v = 1; v <= UPDATES; v += 1) {
    for (let from = 0; from < documents; from += BATCH) {
      const operations = Array.from({ length: Math.min(BATCH, documents - from) }, (_, index) => ({
        updateOne: { filter: { _id: from + index }, update: { $set: { 'data.v': v } } },
      }));
      await source.bulkWrite(operations, { ordered: false });
    }
  }
}

async function measured(
  bench: Bench,
  entry: (typeof ENTRIES)[number],
  database: string,
): Promise<{ figures: Record<string, number | string>; runs: unknown[] }> {
  const documents = bench.quick ? DOCUMENTS / 10 : DOCUMENTS;
  const changes = documents * UPDATES;
  const child = await instance(bench, { ...entry, database, monitor: true });
  try {
    const scene = await Scene.of(bench, database, entry.contender);
    await scene.write(documents);
    // Each task has run once before the burst begins. The additional one is of the instance's own probe document.
    if ((await when(() => scene.finished(documents + 1), LIMIT_MS, 50)) === undefined)
      throw new Error('the first runs did not end in two minutes');
    await sleep(1_000);
    await bench.settle();
    child.say('go');
    const began = nanos();
    await burst(scene, documents);
    const written = nanos();
    // The stream is ordered: once the last change is planned, all of them are.
    const planned = await when(() => scene.planned(documents - 1, UPDATES), LIMIT_MS);
    const done = planned && (await when(() => scene.finished(documents + 1), LIMIT_MS, 20));
    const missing = documents - (await scene.plannedCount(UPDATES));
    const { runs, commands, extra, cpuSeconds } = await ended(child);
    return {
      figures: {
        debounce: entry.debounce ?? 'default',
        changes,
        'written in s': round(sinceMs(began, written) / 1_000, 2),
        'changes/s planned': planned === undefined ? NaN : round(changes / (sinceMs(began, planned) / 1_000)),
        'planned ms after the last write': planned === undefined ? NaN : round(sinceMs(written, planned)),
        runs,
        'all run after s': done === undefined ? NaN : round(sinceMs(began, done) / 1_000, 2),
        'not planned': missing,
      },
      runs: [{ cpuSeconds, extra, commands: described(commands) }],
    };
  } finally {
    child.kill();
  }
}

/** Many updates of few documents: how fast they are planned, and how often a handler runs for them. */
export async function reactivePlanner(bench: Bench): Promise<void> {
  const section = 'reactive planner';
  for (const entry of ENTRIES) {
    const { contender, variant } = entry;
    if (!bench.wants(contender)) continue;
    await tried(bench, { section, contender, variant }, async () => {
      const result = await bench.within((database) => measured(bench, entry, database));
      bench.add({ section, contender, variant, ...result });
    });
  }
}
