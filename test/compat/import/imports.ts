/** Helpers of the tests of `tidemill import`. */
import { tidemill, type Ran, type TerminalOptions } from '../../cli/terminal.js';

export interface Report {
  readonly found: Readonly<Record<string, number>>;
  readonly jobs: { readonly created: number; readonly failed: number; readonly here: number };
  readonly schedules: { readonly created: number; readonly here: number };
  readonly served: number;
  readonly removed: number;
  readonly differs: readonly Group[];
  readonly left: readonly Group[];
}

export interface Group {
  readonly reason: string;
  readonly count: number;
  readonly examples: readonly string[];
}

export interface Place {
  /** The arguments that name the store. */
  readonly store: readonly string[];
  readonly from: string;
}

export async function runImport(
  library: string,
  { from, store }: Place,
  flags: readonly string[] = [],
  terminal: TerminalOptions = {},
): Promise<Ran & { readonly report: Report }> {
  const ran = await tidemill(['import', library, '--from', from, ...store, '--json', ...flags], terminal);
  if (ran.code !== 0) throw new Error(`exit code ${String(ran.code)}: ${ran.err}`);
  return { ...ran, report: JSON.parse(ran.out) as Report };
}

/** The reasons for which records were left, or imported with a difference, each with its count. */
export const reasonsOf = (groups: readonly Group[]): Readonly<Record<string, number>> =>
  Object.fromEntries(groups.map(({ reason, count }) => [reason, count]));
