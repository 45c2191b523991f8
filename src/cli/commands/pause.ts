import { shellArgument } from '../../mill/tools.js';
import { onStore, withStore, type Session, type StoreFlags } from '../context.js';
import { CliError, Exit } from '../exit.js';
import type { CommandBuilder } from '../command-builder.js';
import { kindOfName, NAME_KINDS, type NameKind } from '../names.js';
import { recorded } from '../audit.js';

interface Flags extends StoreFlags {
  readonly kind?: NameKind;
  readonly key?: string;
  readonly all?: boolean;
}

type Change = 'pause' | 'resume';

const KIND_HELP = 'the kind of the name, if two kinds share it';

export function addPause(builder: CommandBuilder): void {
  add(builder, 'pause', {
    summary: 'stops all instances from starting work of a name; running work continues',
    examples: [
      ['tidemill pause send-email', 'jobs or reactive tasks of that name'],
      [
        'tidemill pause daily-report --kind schedule',
        'only the recurring job; other jobs of the name continue',
      ],
      ['tidemill pause --all', 'all jobs, reactive tasks and document schedules of the cluster'],
    ],
  });
}

export function addResume(builder: CommandBuilder): void {
  add(builder, 'resume', {
    summary: 'lets all instances start work of a paused name again',
    examples: [
      ['tidemill resume send-email', 'jobs or reactive tasks of that name'],
      ['tidemill resume --all', 'all work; names that are paused by themselves stay paused'],
    ],
  });
}

function add(
  builder: CommandBuilder,
  change: Change,
  texts: { summary: string; examples: readonly (readonly [string, string])[] },
): void {
  const command = builder.command(`${change} [name]`, texts);
  withStore(
    command
      .addOption(command.createOption('--kind <kind>', KIND_HELP).choices([...NAME_KINDS]))
      .option('--key <key>', 'the unique key of a schedule, if its name has several')
      .option('--all', 'all work of the cluster, in place of a name'),
  ).action(
    builder.action((name: string | undefined, flags: Flags) => {
      checkTarget(change, name, flags);
      return onStore(flags, builder.terminal, 'work', (session) =>
        name === undefined ? turnAll(session, change) : turn(session, change, name, flags),
      );
    }),
  );
}

function checkTarget(change: Change, name: string | undefined, { all, kind, key }: Flags): void {
  if ((name === undefined) !== (all === true))
    throw new CliError(Exit.USAGE, `Pass one name, or --all for all work: tidemill ${change} <name>.`);
  if (all === true && (kind !== undefined || key !== undefined))
    throw new CliError(Exit.USAGE, '--all stands for all work; leave out --kind and --key.');
}

async function turnAll(session: Session, change: Change): Promise<undefined> {
  const { mill, out } = session;
  await recorded(session, { action: `mill.${change}`, target: 'all work' }, async () => {
    await mill[change]();
    return change === 'pause' ? 'paused' : 'resumed';
  });
  out.print(
    change === 'pause'
      ? 'All work is paused on every instance; running work ends normally. To resume: tidemill resume --all'
      : 'All work is resumed. Names that were paused by themselves stay paused.',
  );
  out.document({ all: true, paused: change === 'pause' });
  return undefined;
}

async function turn(session: Session, change: Change, name: string, flags: Flags): Promise<Exit | undefined> {
  const { mill, out } = session;
  const kind = flags.kind ?? (await kindOfName(session, name));
  const target = flags.key === undefined ? name : `${name} (${flags.key})`;
  await recorded(session, { action: `${kind}s.${change}`, target }, async () => {
    if (kind === 'job') await mill.jobs[change](name);
    else if (kind === 'task') await mill.tasks[change](name);
    else await mill.schedules[change](name, flags.key);
    return change === 'pause' ? 'paused' : 'resumed';
  });
  const what = { job: 'Jobs', task: 'Reactive tasks', schedule: 'The schedule' }[kind];
  out.print(
    change === 'pause'
      ? `${what} "${name}" ${kind === 'schedule' ? 'is' : 'are'} paused on every instance. To resume: tidemill resume ${kind === 'job' ? '' : `--kind ${kind} `}${shellArgument(name)}`
      : `${what} "${name}" ${kind === 'schedule' ? 'is' : 'are'} resumed.`,
  );
  out.document({ kind, name, paused: change === 'pause' });
  return undefined;
}
