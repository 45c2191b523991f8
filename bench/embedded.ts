/**
 * Queues without a server: Tidemill on its embedded store beside PGlite by itself and beside a queue in SQLite. Each
 * measurement has a fresh folder and fresh processes. Takes some minutes; run it alone.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { EMBEDDED, loadEmbedded, type EmbeddedName } from './contenders/embedded/contender.js';
import { tried, type Row } from './lib/bench.js';
import { inChild } from './lib/child.js';
import { chosen } from './lib/flags.js';
import { described, record, tables } from './lib/report.js';
import { median, round } from './lib/stats.js';
import { atLeast, figuresOf, targetTable } from './lib/targets.js';
import { delayFigures, type Sent, type Started } from './measure/latency.js';
import { processing, type ProcessingResult } from './measure/processing.js';

interface Entry {
  readonly contender: EmbeddedName;
  readonly variant: string;
  readonly jobs: number;
}

const { values: flags } = parseArgs({
  options: {
    embedded: { type: 'boolean' },
    quick: { type: 'boolean', default: false },
    rounds: { type: 'string' },
    only: { type: 'string', default: EMBEDDED.join(',') },
  },
});
const QUICK = flags.quick;
const ROUNDS = Number(flags.rounds ?? (QUICK ? 1 : 3));
const SCALE = QUICK ? 10 : 1;
const only = chosen('only', flags.only, EMBEDDED);

const PROCESSING: readonly Entry[] = [
  { contender: 'raw', variant: 'all100', jobs: 20_000 },
  { contender: 'raw', variant: 'all500', jobs: 20_000 },
  { contender: 'tidemill', variant: 'default', jobs: 20_000 },
  { contender: 'tidemill', variant: 'tuned100', jobs: 20_000 },
  { contender: 'tidemill', variant: 'tuned500', jobs: 20_000 },
  { contender: 'plainjob', variant: 'default', jobs: 20_000 },
];
const ENQUEUEING: readonly Entry[] = [
  { contender: 'raw', variant: 'all500', jobs: 4_000 },
  { contender: 'tidemill', variant: 'default', jobs: 4_000 },
  { contender: 'plainjob', variant: 'default', jobs: 4_000 },
];
const LATENCY: readonly Entry[] = [
  { contender: 'tidemill', variant: 'default', jobs: 200 },
  { contender: 'plainjob', variant: 'poll10', jobs: 200 },
];

const folder = await mkdtemp(join(tmpdir(), 'tidemill-bench-'));
const uri = pathToFileURL(folder).href;
const rows: Row[] = [];
const add = (row: Row): void => {
  rows.push(row);
  console.error(`${row.section}: ${row.contender} ${row.variant} ${JSON.stringify(row.figures)}`);
};
let databases = 0;

/** Runs `work` with a folder of its own, which is removed afterwards. */
async function within<T>(work: (database: string) => Promise<T>): Promise<T> {
  const database = `embedded_${String((databases += 1))}`;
  try {
    return await work(database);
  } finally {
    await rm(join(folder, database), { recursive: true, force: true });
  }
}

/** Each entry once per round, so that a busy minute of the machine affects all of them alike. */
async function inRounds<T>(
  section: string,
  entries: readonly Entry[],
  run: (entry: Entry) => Promise<T>,
): Promise<ReadonlyMap<Entry, readonly T[]>> {
  const results = new Map<Entry, T[]>(
    entries.filter(({ contender }) => only.includes(contender)).map((entry) => [entry, []]),
  );
  for (let turn = 0; turn < ROUNDS; turn += 1)
    for (const [entry, runs] of results) {
      const { contender, variant } = entry;
      const result = await tried({ add }, { section, contender, variant }, () => run(entry));
      if (result === undefined) results.delete(entry);
      else runs.push(result);
    }
  return results;
}

async function processed(): Promise<void> {
  const section = 'processing';
  const run = ({ contender, variant, jobs }: Entry): Promise<ProcessingResult> =>
    within((database) => {
      const count = jobs / SCALE;
      return processing({
        uri,
        database,
        contender,
        variant,
        jobs: count,
        processes: 1,
        serverPid: undefined,
      });
    });
  for (const [{ contender, variant }, runs] of await inRounds(section, PROCESSING, run)) {
    const rates = runs.map(({ perSecond }) => perSecond);
    const figures = {
      'jobs/s': median(rates),
      lowest: Math.min(...rates),
      highest: Math.max(...rates),
      jobs: runs[0]!.handled,
      'CPU µs/job': round(median(runs.map((one) => (one.workerCpuSeconds / one.handled) * 1e6))),
      note: runs.some(({ timedOut }) => timedOut) ? 'did not finish in two minutes' : '',
    };
    add({ section, contender, variant, figures, runs });
  }
}

interface Rates {
  readonly serial: number | null;
  readonly single: number | null;
  readonly many: number | null;
}

async function enqueued(): Promise<void> {
  const section = 'enqueueing';
  const run = async ({ contender, variant, jobs }: Entry): Promise<Rates> => {
    const rate = (task: string, count: number, settings: object): Promise<number | null> =>
      within(async (database) => {
        const assignment = { uri, database, contender, variant, task, jobs: count / SCALE, ...settings };
        return (await inChild<{ perSecond: number | null }>(assignment)).perSecond;
      });
    return {
      serial: await rate('enqueue', jobs / 2, { inFlight: 1 }),
      single: await rate('enqueue', jobs, { inFlight: 32 }),
      many: await rate('enqueueMany', jobs * 5, { batch: 1_000 }),
    };
  };
  for (const [{ contender, variant }, runs] of await inRounds(section, ENQUEUEING, run)) {
    const of = (key: keyof Rates): number | null =>
      runs[0]![key] === null ? null : median(runs.map((one) => one[key] ?? NaN));
    const figures = {
      'one after the other, jobs/s': of('serial'),
      'single, 32 in flight, jobs/s': of('single'),
      'many, 1,000 a call, jobs/s': of('many'),
    };
    add({ section, contender, variant, figures, runs });
  }
}

async function delayed(): Promise<void> {
  const section = 'latency, one process';
  for (const { contender, variant, jobs } of LATENCY) {
    if (!only.includes(contender)) continue;
    await tried({ add }, { section, contender, variant }, async () => {
      const { sent, started } = await within((database) => {
        const assignment = { uri, database, contender, variant, task: 'alone', samples: jobs / SCALE };
        return inChild<{ sent: Sent; started: Started }>(assignment);
      });
      add({ section, contender, variant, ...delayFigures(sent, started) });
    });
  }
}

try {
  await enqueued();
  await processed();
  await delayed();
  const figure = figuresOf(rows);
  const rate = (contender: string, variant: string): number =>
    figure('processing', contender, variant, 'jobs/s');
  const judged = [
    atLeast(
      'processing at least half of raw PGlite, batches of 100, our defaults',
      rate('tidemill', 'default') / rate('raw', 'all100'),
      0.5,
    ),
    atLeast(
      'processing at least half of raw PGlite, batches of 500, best settings',
      Math.max(...['default', 'tuned100', 'tuned500'].map((variant) => rate('tidemill', variant))) /
        rate('raw', 'all500'),
      0.5,
    ),
  ];
  const contenders = await described(EMBEDDED, loadEmbedded);
  const file = record('embedded', { rounds: ROUNDS, contenders, targets: judged, rows }, QUICK);
  console.log(`${tables(rows)}\n\n${targetTable(judged)}\n\nraw figures: ${file}`);
} finally {
  await rm(folder, { recursive: true, force: true });
}
