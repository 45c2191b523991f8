import type { PostgresName } from '../../contenders/postgres/contender.js';
import { tried } from '../../lib/bench.js';
import { inChild } from '../../lib/child.js';
import { across, delayFigures, type Sent, type Started } from '../latency.js';
import type { PostgresBench } from './bench.js';

interface Entry {
  readonly contender: PostgresName;
  readonly variant: string;
}

interface Heard {
  readonly sent: Sent;
  readonly started: Started;
}

const ENTRIES: readonly Entry[] = [
  { contender: 'raw', variant: 'notify' },
  { contender: 'tidemill', variant: 'default' },
  { contender: 'pg-boss', variant: 'batch500' },
  { contender: 'graphile-worker', variant: 'local500' },
  { contender: 'graphile-worker', variant: 'jobs24' },
  { contender: 'bullmq', variant: 'jobs100' },
];
const SECTIONS = ['latency, two processes', 'latency, one process'];
/** Per round; contenders without a target need fewer. */
const SAMPLES = 120;
const FEW_SAMPLES = 25;
/** The first jobs meet code that has never run and connections that are not open yet, so they are left out. */
const WARMING_UP = 5;

/** Combines the samples of all rounds. */
function pooled(rounds: readonly Heard[]): Heard {
  const all = (one: keyof Heard): object =>
    Object.fromEntries(
      rounds.flatMap((heard, round) =>
        Object.entries(heard[one])
          .filter(([n]) => Number(n) >= WARMING_UP)
          .map(([n, times]) => [round * SAMPLES + Number(n), times]),
      ),
    );
  return { sent: all('sent') as Sent, started: all('started') as Started };
}

/**
 * Sends one job every 100 to 200 ms, so that everything is idle when it arrives. Contenders take turns, so that a
 * busy minute affects all of them alike.
 */
export async function latency(bench: PostgresBench): Promise<void> {
  for (const section of SECTIONS) {
    const heard = new Map<Entry, Heard[]>(ENTRIES.map((entry) => [entry, []]));
    for (let turn = 0; turn < bench.rounds; turn += 1) {
      for (const [entry, runs] of heard) {
        if (!bench.wants(entry.contender)) continue;
        const run = await tried(bench, { section, ...entry }, () => once(bench, section, entry));
        if (run === undefined) heard.delete(entry);
        else runs.push(run);
      }
    }
    for (const [entry, runs] of heard) {
      const { sent, started } = pooled(runs);
      if (runs.length > 0) bench.add({ section, ...entry, ...delayFigures(sent, started) });
    }
  }
}

function once(bench: PostgresBench, section: string, entry: Entry): Promise<Heard> {
  const compared = entry.contender !== 'raw' && entry.contender !== 'bullmq';
  const samples = bench.quick || !compared ? FEW_SAMPLES : SAMPLES;
  const { uri } = bench;
  return bench.within((database) =>
    section.endsWith('two processes')
      ? across({ uri, ...entry, database }, samples)
      : inChild<Heard>({ uri, ...entry, database, task: 'alone', samples }),
  );
}
