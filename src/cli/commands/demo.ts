import { runPart } from '../demo/child.js';
import type { Role } from '../demo/crew.js';
import { CHOICES, placeFor } from '../demo/place.js';
import { runDemo } from '../demo/run.js';
import { CliError, Exit } from '../exit.js';
import type { CommandBuilder } from '../command-builder.js';
import { portOf } from './dashboard.js';

interface Flags {
  readonly store: string;
  readonly seconds?: string;
  readonly port?: string;
  readonly color: boolean;
}

export function addDemo(builder: CommandBuilder): void {
  builder
    .command('demo', {
      summary: 'runs all three kinds of work, workers that die, and the dashboard',
      about:
        'Without --store it needs only PGlite (npm install @electric-sql/pglite), a database inside this process. On a ' +
        'server it uses a database or schema of its own, which it removes at the end, and every worker is a process.',
      examples: [
        ['tidemill demo', 'until q or Ctrl-C'],
        ['tidemill demo --store postgres://localhost/app', 'with worker processes that are really killed'],
        ['tidemill demo --seconds 20', 'stops by itself'],
      ],
    })
    .option('--store <url>', CHOICES, 'embedded')
    .option('--seconds <number>', 'stop after this many seconds')
    .option('--port <number>', 'port of the dashboard, on 127.0.0.1 (4747, or any free port)')
    .option('--no-color', 'print no colours; a pipe never gets any')
    .action(builder.action((flags: Flags) => demo(builder, flags)));
  builder.program
    .command('demo-part <role> <name>', { hidden: true })
    .action(async (role: Role, name: string) => runPart(role, name));
}

async function demo(builder: CommandBuilder, flags: Flags): Promise<undefined> {
  const seconds = flags.seconds === undefined ? Infinity : Number(flags.seconds);
  if (!(seconds > 0))
    throw new CliError(Exit.USAGE, `--seconds must be a number above 0, got "${flags.seconds ?? ''}".`);
  const { terminal } = builder;
  await runDemo({
    place: placeFor(flags.store),
    terminal,
    seconds,
    port: portOf(flags.port),
    color: flags.color,
  });
  return undefined;
}
