import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { shellArgument, versionOf } from '../../mill/tools.js';
import { CliError, Exit } from '../exit.js';
import type { CommandBuilder } from '../command-builder.js';
import { STARTER_STORES, starterFiles, type StarterStore } from '../init/starter.js';
import { harmless } from '../render/text.js';

interface Flags {
  readonly store: StarterStore;
  readonly force?: boolean;
}

export function addInit(builder: CommandBuilder): void {
  const command = builder.command('init [folder]', {
    summary: 'writes a starter in TypeScript: a job, a worker, the dashboard and a test',
    about: 'Writes into an empty folder; without one, into the current folder. Installs nothing.',
    examples: [
      ['tidemill init my-app', 'with an embedded database, so that it needs no server'],
      ['tidemill init my-app --store postgres', 'with PostgreSQL'],
    ],
  });
  command
    .addOption(
      command
        .createOption('--store <store>', 'which database')
        .choices([...STARTER_STORES])
        .default('embedded'),
    )
    .option('--force', 'write into a folder that is not empty, and replace files of the same names')
    .action(builder.action(async (folder: string | undefined, flags: Flags) => init(builder, folder, flags)));
}

/** The name of the package: that of the folder, as npm allows it. */
function packageName(folder: string): string {
  const words = basename(folder)
    .toLowerCase()
    .split(/[^a-z0-9]+/u)
    .filter((word) => word !== '');
  return words.length === 0 ? 'tidemill-app' : words.join('-');
}

/** A new repository is empty, too. */
const contentsOf = (folder: string): readonly string[] =>
  existsSync(folder) ? readdirSync(folder).filter((name) => name !== '.git') : [];

function init({ terminal }: CommandBuilder, given = '.', { store, force }: Flags): undefined {
  const folder = resolve(given);
  const [first, ...others] = contentsOf(folder);
  if (first !== undefined && force !== true)
    throw new CliError(
      Exit.USAGE,
      `The folder ${folder} is not empty: it has ${first}${others.length === 0 ? '' : ` and ${String(others.length)} more`}. ` +
        'Name an empty folder, or pass --force.',
    );
  const files = starterFiles({ name: packageName(folder), store, version: versionOf() });
  for (const [path, text] of Object.entries(files)) {
    const file = join(folder, path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, text);
  }
  const place = relative(process.cwd(), folder);
  const lines = [
    `Wrote ${String(Object.keys(files).length)} files to ${folder}:`,
    ...Object.keys(files).map((path) => `  ${path}`),
    '',
    'Next:',
    ...(place === '' ? [] : [`  cd ${shellArgument(place)}`]),
    '  npm install',
    '  npm test',
    '  npm start',
  ];
  for (const line of lines) terminal.stdout.write(`${harmless(line, false)}\n`);
  return undefined;
}
