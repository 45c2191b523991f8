import { Argument, type Command } from 'commander';
import { onStore, withStore, type StoreFlags } from '../context.js';
import { CliError, Exit } from '../exit.js';
import { gathered, type CommandBuilder } from '../command-builder.js';
import { LIBRARIES, type Library } from '../import/sources.js';
import type { ImportFlags } from '../import/import-run.js';

type Flags = StoreFlags & ImportFlags;

/** Its records stay in their database, so it is not read record by record like the others. */
const IN_PLACE = 'mongodash';
const NAMES = [...Object.keys(LIBRARIES), IN_PLACE].sort();
/** Options that have no meaning for it, and those whose value the compat entry sets. */
const NOT_IN_PLACE = [
  'follow',
  'name',
  'fromSchema',
  'lockLifetime',
  'includeRunning',
  'includeLost',
] as const;
const NOT_CHOSEN = ['schema', 'jobsCollection', 'globalsCollection'] as const;

export function addImport(builder: CommandBuilder): void {
  const command = builder
    .command('import', {
      summary: 'imports jobs and schedules from another library',
      about:
        'Ids here follow from those of the source, so the command can be repeated, and continues after it was stopped. ' +
        'The source stays as it is, unless you pass --move. Stop its workers first: they and yours would run the same jobs.',
      examples: [
        [
          'tidemill import agenda --from mongodb://localhost/app --dry-run',
          'what would be imported, and what not',
        ],
        ['tidemill import pg-boss --from postgres://localhost/app', 'copies; repeat it as you like'],
        [
          'tidemill import agenda --from mongodb://localhost/app --move --follow',
          'until all producers are switched',
        ],
      ],
    })
    .addArgument(new Argument('<library>', 'where they come from').choices(NAMES));
  withStore(withSource(command)).action(
    builder.action((name: string, flags: Flags) => {
      const library = LIBRARIES[name];
      return library === undefined ? takeOver(builder, flags) : start(builder, library, flags);
    }),
  );
}

const withSource = (command: Command): Command =>
  command
    .optionsGroup('Source:')
    .requiredOption('--from <url>', 'the database of the other library: mongodb://… or postgres://…')
    .option(
      '--from-collection <name>',
      'MongoDB: its collection, if it is not the default one; of mongodash, its globalsCollection',
    )
    .option('--from-schema <name>', 'PostgreSQL: its schema, if it is not the default one')
    .option('--name <name>', 'only work of this name (repeatable)', gathered)
    .optionsGroup('How:')
    .option('--dry-run', 'report what would happen, and write nothing')
    .option('--move', 'remove each record from the source once it is stored, if it has not changed there')
    .option('--follow', 'go on copying new records until Ctrl-C')
    .option('--timezone <zone>', 'the zone of schedules that name none', 'UTC')
    .option(
      '--lock-lifetime <duration>',
      'a lock older than this is of a dead process (the default of the library)',
    )
    .option('--yes', 'mongodash: do not ask whether all of its instances are stopped')
    .option('--include-running', 'also import what runs there now; it may run twice')
    .option('--include-lost', 'Agenda, Pulse: also import what a crash has left without a time');

function checkDryRun({ dryRun = false, move = false, follow = false }: Flags): void {
  if (dryRun && (move || follow))
    throw new CliError(Exit.USAGE, '--dry-run writes nothing: leave out --move and --follow.');
}

async function start(builder: CommandBuilder, library: Library, flags: Flags): Promise<Exit> {
  const { dryRun = false, move = false, follow = false } = flags;
  const { checksOnly = false, title } = library;
  checkDryRun(flags);
  if (checksOnly && (move || follow))
    throw new CliError(Exit.USAGE, `${title}: documents stay where they are; leave out --move and --follow.`);
  const { runImport } = await import('../import/import-run.js');
  return onStore(flags, builder.terminal, dryRun || checksOnly ? 'inspect' : undefined, (session) =>
    runImport(session, library, flags),
  );
}

async function takeOver(builder: CommandBuilder, flags: Flags): Promise<Exit> {
  const { from, store = from, dryRun = false } = flags;
  checkDryRun(flags);
  const pointless = NOT_IN_PLACE.find((name) => flags[name] !== undefined);
  if (pointless !== undefined)
    throw new CliError(
      Exit.USAGE,
      `mongodash: leave out ${flagOf(pointless)}. Stop all of its instances; then everything is taken over in one go.`,
    );
  const chosen = NOT_CHOSEN.find((name) => flags[name] !== undefined);
  if (chosen !== undefined)
    throw new CliError(
      Exit.USAGE,
      `mongodash: leave out ${flagOf(chosen)}. What is taken over goes where tidemill/compat/mongodash looks for it.`,
    );
  if (store !== from)
    throw new CliError(
      Exit.USAGE,
      'mongodash: what it has stored stays in its database; leave out --store, or pass the same URL as --from.',
    );
  const { importMongodash } = await import('../import/libraries/mongodash.js');
  return onStore({ ...flags, store }, builder.terminal, dryRun ? 'inspect' : undefined, (session) =>
    importMongodash(session, flags),
  );
}

const flagOf = (name: string): string =>
  `--${name.replaceAll(/[A-Z]/gu, (letter) => `-${letter.toLowerCase()}`)}`;
