import { Command, CommanderError } from 'commander';
import { reasonOf } from '../mill/tools.js';
import { versionOf } from '../version.js';
import { addBench } from './commands/bench.js';
import { addCancel, addRetry } from './commands/change.js';
import { addCompletion } from './commands/completion.js';
import { addDashboard } from './commands/dashboard.js';
import { addDemo } from './commands/demo.js';
import { addDoctor } from './commands/doctor.js';
import { addDropTriggers } from './commands/drop-triggers.js';
import { addForget } from './commands/forget.js';
import { addImport } from './commands/import.js';
import { addInit } from './commands/init.js';
import { addLimits } from './commands/limits.js';
import { addLs } from './commands/ls.js';
import { addPause, addResume } from './commands/pause.js';
import { addReconcile } from './commands/reconcile.js';
import { addRun } from './commands/run.js';
import { addShow } from './commands/show.js';
import { addStats } from './commands/stats.js';
import { Exit, exitOf } from './exit.js';
import { CommandBuilder } from './command-builder.js';
import { cleanLines, harmless, painter } from './render/text.js';
import { hider } from './secrets.js';
import type { Terminal } from './terminal.js';

const ABOUT = `Inspects and manages the background work of a Tidemill store.

  tidemill init      writes a starter application
  tidemill demo      shows everything, with a database of its own
  tidemill doctor    checks your database`;

const EXITS = `
Exit codes: 0 success · 1 failure · 2 wrong usage · 3 nothing found · 4 doctor found problems
Each command explains its options: tidemill <command> --help · Guide: docs/cli.md in the repository`;

/** Builds the whole tree of commands. */
export function buildProgram(terminal: Terminal): CommandBuilder {
  const hide = hiderFor([], terminal);
  const program = new Command('tidemill')
    .description(ABOUT)
    .version(versionOf(), '-V, --version', 'print the version')
    .helpOption('-h, --help', 'show help')
    .helpCommand(false)
    .configureHelp({ subcommandTerm: termOf })
    .addHelpText('after', EXITS)
    .showHelpAfterError('(see --help)')
    .exitOverride()
    .configureOutput({
      writeOut: (text) => void terminal.stdout.write(text),
      writeErr: (text) => void terminal.stderr.write(harmless(hide(text), false)),
      getOutHelpWidth: () => terminal.stdout.columns ?? 80,
      getErrHelpWidth: () => terminal.stderr.columns ?? 80,
      getOutHasColors: () => false,
      getErrHasColors: () => false,
    });
  const builder = new CommandBuilder(terminal, program);
  program.commandsGroup('Begin:');
  addInit(builder);
  addDemo(builder);
  addDoctor(builder);
  addBench(builder);
  program.commandsGroup('Inspect:');
  addDashboard(builder);
  addStats(builder);
  addLs(builder);
  addShow(builder);
  program.commandsGroup('Change:');
  addRun(builder);
  addRetry(builder);
  addCancel(builder);
  addPause(builder);
  addResume(builder);
  addLimits(builder);
  addReconcile(builder);
  addForget(builder);
  addImport(builder);
  addDropTriggers(builder);
  program.commandsGroup('Shell:');
  addCompletion(builder);
  return builder;
}

/** Leaves out `[options]`, which every command has. */
const termOf = (command: Command): string =>
  [
    command.name(),
    ...command.registeredArguments.map((argument) => {
      const name = `${argument.name()}${argument.variadic ? '...' : ''}`;
      return argument.required ? `<${name}>` : `[${name}]`;
    }),
  ].join(' ');

/** Hides the credentials of every text that may be a URL, since an error may quote any of them. */
const hiderFor = (args: readonly string[], { env }: Terminal): ((text: string) => string) => {
  const texts = [env['TIDEMILL_STORE'] ?? '', ...args.map((arg) => arg.replace(/^--[\w-]+=/u, ''))];
  return hider(texts.filter((text) => text.includes('://') || /^(?:mongodb|postgres)/u.test(text)));
};

/** Runs one command line and returns the exit code. */
export async function runProgram(args: readonly string[], given: Terminal): Promise<number> {
  const hide = hiderFor(args, given);
  const terminal: Terminal = {
    ...given,
    stderr: { ...sinkOf(given), write: (text) => given.stderr.write(hide(text)) },
  };
  const builder = buildProgram(terminal);
  if (args.length === 0) {
    builder.program.outputHelp();
    return Exit.OK;
  }
  try {
    await builder.program.parseAsync([...args], { from: 'user' });
    return builder.exit;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? Exit.OK : Exit.USAGE;
    const paint = painter(given.stderr, given.env, !args.includes('--no-color'));
    terminal.stderr.write(`${paint('red', 'error:')} ${cleanLines(reasonOf(error))}\n`);
    return exitOf(error);
  }
}

const sinkOf = ({ stderr }: Terminal): Pick<Terminal['stderr'], 'isTTY' | 'columns'> => ({
  ...(stderr.isTTY === undefined ? {} : { isTTY: stderr.isTTY }),
  ...(stderr.columns === undefined ? {} : { columns: stderr.columns }),
});
