import { randomBytes } from 'node:crypto';
import { Tidemill, type Store } from '../../index.js';
import { openStore } from '../../mill/opening/open-store.js';
import { bench, type Measure } from '../bench.js';
import { confirmed } from '../confirm.js';
import { outputFor, storeUrl, withStore, type StoreFlags } from '../context.js';
import { CliError, Exit } from '../exit.js';
import type { CommandBuilder } from '../command-builder.js';
import { safeUrl } from '../secrets.js';
import type { Terminal } from '../terminal.js';

interface Flags extends StoreFlags {
  readonly jobs: string;
  readonly yes?: boolean;
}

const MOST_JOBS = 1_000_000;

export function addBench(builder: CommandBuilder): void {
  const command = builder.command('bench', {
    summary: 'measures your own database, in a schema or collections that it removes again',
    about:
      'Never touches your jobs: it creates a schema, or collections, with a new name. It does put load on the server.',
    examples: [
      ['tidemill bench --store postgres://localhost/app', 'asks, measures, and removes what it created'],
      ['tidemill bench --store memory:', 'the cost of the library itself, without a database'],
      ['tidemill bench --jobs 50000 --yes --json', 'longer, for a script'],
    ],
  });
  withStore(
    command
      .option('--jobs <number>', 'how many jobs to run', '5000')
      .option('--yes', 'do not ask for confirmation'),
  ).action(builder.action((flags: Flags) => run(builder.terminal, flags)));
}

async function run(terminal: Terminal, flags: Flags): Promise<Exit> {
  const url = storeUrl(flags, terminal);
  const out = outputFor(flags, terminal, [url]);
  const jobs = Number(flags.jobs);
  if (!Number.isInteger(jobs) || jobs < 1 || jobs > MOST_JOBS)
    throw new CliError(
      Exit.USAGE,
      `--jobs must be a whole number from 1 to ${String(MOST_JOBS)}, got "${flags.jobs}".`,
    );
  const space = `tidemill_bench_${randomBytes(4).toString('hex')}`;
  const apart = url.startsWith('mongodb') ? `collections ${space}_*` : `the schema ${space}`;
  const question = `Create ${apart} in ${safeUrl(url)}, run ${jobs.toLocaleString('en-US')} jobs there, and remove it again?`;
  if (!isInProcess(url) && !(await confirmed({ terminal, out }, question, flags.yes))) return Exit.FAILED;
  const measures = await measured(url, space, jobs, terminal);
  out.table(COLUMNS, measures);
  out.document({ store: safeUrl(url), jobs, measures });
  return Exit.OK;
}

const isInProcess = (url: string): boolean => /^(?:memory|embedded):/u.test(url);

/** Removes what it created, even if it is interrupted. */
async function measured(
  url: string,
  space: string,
  jobs: number,
  terminal: Terminal,
): Promise<readonly Measure[]> {
  const signal = terminal.interrupted();
  const names = ['jobs', 'globals', 'metrics', 'audit'] as const;
  const collections = Object.fromEntries(names.map((name) => [name, `${space}_${name}`]));
  const fresh = (): Promise<Store> => openStore(url, { schema: space, collections });
  // A store that lives in this process has one connection, which all share.
  const one = /^(?:mongodb|postgres)/u.test(url) ? undefined : await fresh();
  const open = async (): Promise<Store> => one ?? fresh();
  const store = await open();
  await using keeper = new Tidemill({ store, logger: false });
  const tell = (text: string): unknown =>
    terminal.stderr.isTTY === true && terminal.stderr.write(`\r\u001B[2Kmeasuring ${text} …`);
  try {
    await keeper.jobs.count();
    return await bench({ open, jobs, signal, tell });
  } finally {
    if (terminal.stderr.isTTY === true) terminal.stderr.write('\r\u001B[2K');
    await store.erase?.();
  }
}

const number = (value: number | undefined, digits: number): string =>
  value === undefined
    ? ''
    : value.toLocaleString('en-US', { maximumFractionDigits: digits, minimumFractionDigits: digits });

const COLUMNS = [
  { head: 'MEASURE', text: ({ what }: Measure) => what },
  { head: 'JOBS/S', text: ({ perSecond }: Measure) => number(perSecond, 0), align: 'right' as const },
  { head: 'P50 MS', text: ({ p50Ms }: Measure) => number(p50Ms, 1), align: 'right' as const },
  { head: 'P99 MS', text: ({ p99Ms }: Measure) => number(p99Ms, 1), align: 'right' as const },
  { head: 'WHAT IT MEANS', text: ({ means }: Measure) => means, grows: true, style: () => 'dim' as const },
];
