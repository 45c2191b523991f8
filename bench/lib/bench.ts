import type { MongoClient } from 'mongodb';
import type { ContenderName } from '../contenders/contender.js';

/** One line of the results. */
export interface Row {
  readonly section: string;
  readonly contender: string;
  readonly variant: string;
  /** What the table shows, by column. */
  readonly figures: Readonly<Record<string, number | string | null>>;
  /** Everything that was measured for this row, run by run. */
  readonly runs: readonly unknown[];
}

/** What every section needs, whatever the database, and where it puts its results. */
export interface BenchOn<Name extends string> {
  readonly uri: string;
  readonly serverPid: number | undefined;
  readonly quick: boolean;
  /** All contenders and sections, with the usual counts: the figures are kept. */
  readonly complete: boolean;
  readonly rounds: number;
  readonly rows: Row[];
  wants(contender: Name): boolean;
  /** Runs `work` with a new database, which is dropped afterwards. */
  within<T>(work: (database: string) => Promise<T>): Promise<T>;
  add(row: Row): void;
}

/** On MongoDB. */
export interface Bench extends BenchOn<ContenderName> {
  readonly client: MongoClient;
  /** Writes everything to disk, so that no checkpoint of an earlier measurement falls into the next one. */
  readonly settle: () => Promise<void>;
}

/** Reports a contender that cannot be measured as failed; the others continue. */
export async function tried<T>(
  bench: Pick<Bench, 'add'>,
  row: Pick<Row, 'section' | 'contender' | 'variant'>,
  work: () => Promise<T>,
): Promise<T | undefined> {
  try {
    return await work();
  } catch (error) {
    const [reason] = (error instanceof Error ? error.message : String(error)).split('\n');
    bench.add({ ...row, figures: { failed: reason ?? '' }, runs: [] });
    return undefined;
  }
}
