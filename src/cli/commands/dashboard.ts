import { once } from 'node:events';
import { reasonOf } from '../../mill/tools.js';
import { onStore, withStore, type Session, type StoreFlags } from '../context.js';
import { CliError, Exit } from '../exit.js';
import { gathered, type CommandBuilder } from '../command-builder.js';
import { cleanLines } from '../render/text.js';
import { serveDashboard } from '../serve/serve.js';

interface Flags extends StoreFlags {
  readonly port?: string;
  readonly readOnly?: boolean;
  readonly documents?: readonly string[];
}

export function addDashboard(builder: CommandBuilder): void {
  const command = builder.command('dashboard', {
    summary: 'serves the dashboard on this machine, for you alone',
    about:
      'Listens on 127.0.0.1 only. The printed link works once and gives your browser a cookie; then a new link is printed. ' +
      'To share the dashboard, mount it in your own server, with your own access rules: createDashboard of tidemill/dashboard.',
    examples: [
      ['tidemill dashboard --store mongodb://localhost:27017/app', 'until Ctrl-C'],
      ['tidemill dashboard --read-only --port 8080', 'allows no changes'],
    ],
  });
  withStore(
    command
      .option('--port <number>', 'port to listen on (4747, or any free port)')
      .option('--read-only', 'allow no changes')
      .option(
        '--documents <collection>',
        'a collection or table whose documents have schedules (repeatable)',
        gathered,
      ),
  ).action(
    builder.action(async (flags: Flags) => {
      const port = portOf(flags.port);
      return onStore(flags, builder.terminal, 'work', (session) => dashboard(session, flags, port));
    }),
  );
}

async function dashboard(
  { mill, out, terminal, place }: Session,
  flags: Flags,
  port: number | undefined,
): Promise<undefined> {
  for (const collection of flags.documents ?? []) mill.documents({ collection, onDocument: () => undefined });
  // Before anything is printed: a store that does not respond has no dashboard.
  await mill.jobs.stats();
  const stop = terminal.interrupted();
  const tell = (): void => {
    out.print(`  ${served.link}`);
    out.document({ store: place, link: served.link });
  };
  const served = await serveDashboard({
    mill,
    port,
    readOnly: flags.readOnly ?? false,
    onError: (error) => out.note(`error: ${cleanLines(reasonOf(error))}`),
    used: () => {
      out.print('', 'The link was used. Link for another browser:');
      tell();
    },
  });
  out.print(
    `${out.paint('bold', 'Dashboard')} of ${place}${flags.readOnly === true ? ', read-only' : ''}. The link works once. Press Ctrl-C to stop.`,
    '',
  );
  tell();
  if (!stop.aborted) await once(stop, 'abort');
  await served.close();
  return undefined;
}

export function portOf(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const port = Number(text);
  if (Number.isInteger(port) && port >= 0 && port < 65_536) return port;
  throw new CliError(Exit.USAGE, `--port must be a whole number from 0 to 65535, got "${text}".`);
}
