import pg from 'pg';
import type { PostgresName } from '../../contenders/postgres/contender.js';
import { tried, type BenchOn } from '../../lib/bench.js';
import { processing, type ProcessingResult } from '../processing.js';

export interface PostgresBench extends BenchOn<PostgresName> {
  /** Runs a statement of the benchmark's own in one of the databases. */
  query<T extends object>(database: string, text: string, values?: readonly unknown[]): Promise<T[]>;
}

/** What is measured: a contender with its settings. */
export interface Entry {
  readonly contender: PostgresName;
  readonly variant: string;
  readonly jobs: number;
  readonly processes?: number;
}

/**
 * Analyses the tables and writes them to disk before the clock starts, so that neither plans nor checkpoints depend
 * on chance.
 */
export async function settle(bench: PostgresBench, database: string): Promise<void> {
  await bench.query(database, 'vacuum analyze');
  await bench.query(database, 'checkpoint');
}

export function drain(bench: PostgresBench, entry: Entry, database: string): Promise<ProcessingResult> {
  const { contender, variant, processes = 1 } = entry;
  const { uri, serverPid, quick } = bench;
  // Counts below 100 are for settings that take seconds per job.
  const jobs = quick && entry.jobs > 100 ? Math.ceil(entry.jobs / 10) : entry.jobs;
  const request = { uri, database, contender, variant, jobs, processes, serverPid };
  return processing({ ...request, settle: () => settle(bench, database) });
}

/** Runs every entry once per round, so that a busy minute of the machine affects all of them alike. */
export async function rounds(
  bench: PostgresBench,
  section: string,
  entries: readonly Entry[],
): Promise<Map<Entry, ProcessingResult[]>> {
  const results = new Map<Entry, ProcessingResult[]>();
  const failed = new Set<Entry>();
  for (let turn = 0; turn < bench.rounds; turn += 1) {
    for (const entry of entries) {
      if (!bench.wants(entry.contender) || failed.has(entry)) continue;
      const { contender, variant } = entry;
      const run = (database: string): Promise<ProcessingResult> => drain(bench, entry, database);
      const result = await tried(bench, { section, contender, variant }, () => bench.within(run));
      if (result === undefined) failed.add(entry);
      else results.set(entry, [...(results.get(entry) ?? []), result]);
    }
  }
  return results;
}

/** Runs one statement on a connection of its own, because databases come and go. */
export async function once<T extends object>(
  url: string,
  text: string,
  values: readonly unknown[] = [],
): Promise<T[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query<T>(text, [...values])).rows;
  } finally {
    await client.end();
  }
}
