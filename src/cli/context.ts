import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Command } from 'commander';
import { Tidemill, type Store } from '../index.js';
import { folderOf, openStore, type OpenOptions } from '../mill/opening/open-store.js';
import { CliError, Exit } from './exit.js';
import { Output } from './output.js';
import { hider, safeUrl } from './secrets.js';
import type { Terminal } from './terminal.js';

/** The options of every command that opens a store. */
export interface StoreFlags {
  readonly store?: string;
  readonly schema?: string;
  readonly jobsCollection?: string;
  readonly globalsCollection?: string;
  readonly json?: boolean;
  readonly color: boolean;
}

/** What a command works with: a mill on its store, and where to write. */
export interface Session {
  readonly mill: Tidemill;
  readonly store: Store;
  readonly out: Output;
  readonly terminal: Terminal;
  /** The store's URL without credentials. */
  readonly place: string;
}

const COMMON = 'Store:';

/** Adds the options that all commands on a store share. */
export const withStore = (command: Command): Command =>
  withOutput(command)
    .optionsGroup(COMMON)
    .option('--store <url>', 'mongodb://…, postgres://… or file:./folder (or set TIDEMILL_STORE)')
    .option('--schema <name>', 'PostgreSQL: the schema, if it is not "tidemill"')
    .option('--jobs-collection <name>', 'MongoDB: the collection, if it is not "tidemill_jobs"')
    .option('--globals-collection <name>', 'MongoDB: the collection, if it is not "_tidemill_globals"');

const withOutput = (command: Command): Command =>
  command
    .optionsGroup('Output:')
    .option('--json', 'print only JSON on stdout; a list as one line per item')
    .option('--no-color', 'print no colours; a pipe never gets any');

export function storeUrl(flags: StoreFlags, terminal: Terminal): string {
  const url = flags.store ?? terminal.env['TIDEMILL_STORE'] ?? '';
  if (url !== '') return url;
  throw new CliError(
    Exit.USAGE,
    'No store was given. Pass --store, or set TIDEMILL_STORE:\n' +
      '  --store mongodb://localhost:27017/app\n  --store postgres://localhost/app\n  --store file:./data',
  );
}

export const outputFor = (
  flags: Pick<StoreFlags, 'json' | 'color'>,
  terminal: Terminal,
  urls: readonly string[],
): Output => new Output(terminal, { json: flags.json ?? false, color: flags.color, hide: hider(urls) });

/** Opens the store while `work` runs, then closes it. With `visit` it creates nothing in the store. */
export async function onStore<T>(
  flags: StoreFlags,
  terminal: Terminal,
  visit: OpenOptions['visit'],
  work: (session: Session) => Promise<T>,
): Promise<T> {
  const url = storeUrl(flags, terminal);
  const out = outputFor(flags, terminal, [url]);
  checkPlace(url, visit);
  const store = await openStore(impatient(url), openOptions(flags, visit));
  // Log lines are not part of a command's output.
  await using mill = new Tidemill({ store, logger: false });
  return await work({ mill, store, out, terminal, place: safeUrl(url) });
}

/**
 * MongoDB's driver waits half a minute for a server by default. At a terminal 3 s is enough to learn that a host is
 * wrong.
 */
function impatient(url: string): string {
  if (!url.startsWith('mongodb') || /serverSelectionTimeoutMS=/iu.test(url)) return url;
  return `${url}${url.includes('?') ? '&' : '?'}serverSelectionTimeoutMS=3000`;
}

function openOptions(flags: StoreFlags, visit: OpenOptions['visit']): OpenOptions {
  const { schema, jobsCollection: jobs, globalsCollection: globals } = flags;
  const collections = {
    ...(jobs === undefined ? {} : { jobs }),
    ...(globals === undefined ? {} : { globals }),
  };
  return {
    ...(schema === undefined ? {} : { schema }),
    ...(Object.keys(collections).length === 0 ? {} : { collections }),
    ...(visit === undefined ? {} : { visit }),
  };
}

const KNOWN = /^(?:mongodb(?:\+srv)?:\/\/.|postgres(?:ql)?:\/\/.|file:.)/u;

/**
 * Refuses stores that no other process can open. With `visit`, also refuses a folder without a database, which
 * opening would create.
 */
function checkPlace(url: string, visit: OpenOptions['visit']): void {
  if (/^(?:memory|embedded):/u.test(url))
    throw new CliError(
      Exit.USAGE,
      `${url.split(':')[0] ?? ''}: lives inside one process, so no other process can open it. ` +
        'Pass mongodb://…, postgres://… or file:./folder.',
    );
  if (!KNOWN.test(url))
    throw new CliError(
      Exit.USAGE,
      `--store must be mongodb://host/db, postgres://host/db or file:./folder (got "${url.split(/[:/@]/u)[0] ?? ''}").`,
    );
  if (visit === undefined || !url.startsWith('file:')) return;
  if (!existsSync(join(folderOf(url), 'PG_VERSION')))
    throw new CliError(Exit.FAILED, `The folder ${folderOf(url)} contains no database.`);
}
