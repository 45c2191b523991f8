import { setTimeout as sleep } from 'node:timers/promises';
import { recorded } from '../audit.js';
import { reasonOf } from '../../mill/tools.js';
import type { Session } from '../context.js';
import { Exit } from '../exit.js';
import { milliseconds } from '../filters.js';
import { progressBar } from '../render/progress.js';
import { hider } from '../secrets.js';
import type { Source } from './reading.js';
import { printCounts, printMapping, printResults, summaryOf } from './report.js';
import { Runner } from './runner.js';
import type { Library } from './sources.js';
import { StoreRecorder } from './storing.js';

export interface ImportFlags {
  readonly from: string;
  readonly fromCollection?: string;
  readonly fromSchema?: string;
  readonly dryRun?: boolean;
  readonly move?: boolean;
  readonly follow?: boolean;
  readonly name?: readonly string[];
  readonly timezone: string;
  readonly lockLifetime?: string;
  readonly includeRunning?: boolean;
  readonly includeLost?: boolean;
  readonly yes?: boolean;
}

/** `--follow` looks for new records this often, or more rarely if that takes long. */
const FOLLOW_MS = 1_000;
/** `--follow` gives up after so many failed passes in a row: in about a minute, if each fails at once. */
const MOST_FAILURES = 10;
const LINE_EVERY = 0.1;

/** Imports from a library into the store of the session, and prints the report. */
export async function runImport(session: Session, library: Library, flags: ImportFlags): Promise<Exit> {
  // Before anything is opened, since from now on Ctrl-C ends the command only between two pages.
  const stop = session.terminal.interrupted();
  await using source = await library.open({
    url: flags.from,
    collection: flags.fromCollection,
    schema: flags.fromSchema,
    timezone: flags.timezone,
    lockLifetimeMs:
      flags.lockLifetime === undefined ? undefined : milliseconds('lock-lifetime', flags.lockLifetime),
    includeRunning: flags.includeRunning === true,
    includeLost: flags.includeLost === true,
  });
  return await run(session, { library, source, flags, stop });
}

interface Task {
  readonly library: Library;
  readonly source: Source;
  readonly flags: ImportFlags;
  readonly stop: AbortSignal;
}

async function run(session: Session, { library, source, flags, stop }: Task): Promise<Exit> {
  const { mill, store, out, place } = session;
  const hide = hider([flags.from]);
  const safe = (text: string): string => hide(out.safe(text));
  const checksOnly = library.checksOnly === true;
  const ending = { dryRun: flags.dryRun === true || checksOnly, move: flags.move === true, checksOnly };
  out.print(out.paint('bold', `${library.title} at ${source.place}`), `to ${place}`);
  const counts = await source.count();
  printCounts(out, counts);
  printMapping(out, source.mapping);
  const runner = new Runner({
    source,
    storing: new StoreRecorder(mill, store, library.prefix),
    names: flags.name,
    ...ending,
  });
  const total = counts.reduce((sum, { count, finished }) => sum + (finished === true ? 0 : count), 0);
  const work = async (): Promise<string> => {
    await pass(session, runner, total, stop);
    if (flags.follow === true) await follow(session, runner, stop, safe);
    return summaryOf(runner.results);
  };
  if (ending.dryRun) await work();
  else await recorded(session, { action: 'import', target: `${library.title} at ${source.place}` }, work);
  const { results } = runner;
  const interrupted = stop.aborted && flags.follow !== true;
  printResults(out, results, ending);
  if (interrupted) out.note('Interrupted. Run the command again to continue.');
  const groups = (found: typeof results.left): unknown =>
    found.map((group) => ({ ...group, examples: group.examples.map(safe) }));
  out.document({
    library: library.title,
    from: source.place,
    store: place,
    ...ending,
    found: Object.fromEntries(counts.map(({ state, count }) => [state, count])),
    ...results,
    differs: groups(results.differs),
    left: groups(results.left),
    interrupted,
  });
  return interrupted ? Exit.FAILED : Exit.OK;
}

/** A bar on a terminal, and elsewhere a line for each tenth. */
async function pass(
  { terminal, out }: Session,
  runner: Runner,
  total: number,
  stop: AbortSignal,
): Promise<void> {
  const bar = progressBar(terminal.stderr, total);
  let said = 0;
  try {
    await runner.pass(stop, (read) => {
      bar.show(read);
      if (terminal.stderr.isTTY === true || total === 0 || read / total < said + LINE_EVERY) return;
      said = read / total;
      out.note(`${read.toLocaleString('en-US')} of ${total.toLocaleString('en-US')} records`);
    });
  } finally {
    bar.end();
  }
}

/** A database that cannot be reached for a moment does not end it: every step may be repeated. */
async function follow(
  { out }: Session,
  runner: Runner,
  stop: AbortSignal,
  safe: (text: string) => string,
): Promise<void> {
  if (!stop.aborted) out.note('Following: new records are copied until Ctrl-C.');
  let failures = 0;
  while (!stop.aborted) {
    const startedAt = performance.now();
    const before = stored(runner);
    try {
      await runner.pass(stop, () => undefined);
      failures = 0;
    } catch (error) {
      failures += 1;
      if (failures === MOST_FAILURES) throw error;
      out.note(`Could not read or store records; trying again. ${safe(reasonOf(error))}`);
    }
    const copied = stored(runner) - before;
    if (copied > 0) out.note(`${copied.toLocaleString('en-US')} more`);
    const waitMs = Math.max(FOLLOW_MS * (failures + 1), performance.now() - startedAt);
    await sleep(waitMs, undefined, { signal: stop }).catch(() => undefined);
  }
}

const stored = ({ results: { jobs, schedules } }: Runner): number =>
  jobs.created + jobs.failed + schedules.created;
