import type { LimitChanges, LimitState, LimitTarget } from '../../index.js';
import { limitsText, limitTitle, shellArgument } from '../../mill/tools.js';
import { recordedAnswer } from '../audit.js';
import type { CommandBuilder } from '../command-builder.js';
import { confirmed } from '../confirm.js';
import { onStore, withStore, type Session, type StoreFlags } from '../context.js';
import { CliError, Exit } from '../exit.js';
import { changes, changesOf, takesAway, withChanges, type ChangeFlags } from '../limits/changes.js';
import { KEY_COLUMNS, LIMIT_COLUMNS } from '../limits/columns.js';

const ACTIONS = ['list', 'set', 'reset', 'keys', 'breaker'] as const;
type Action = (typeof ACTIONS)[number];
const KINDS = ['job', 'task', 'documents', 'shared'] as const;
const STATES = ['open', 'closed'] as const;
type State = (typeof STATES)[number];

interface Flags extends StoreFlags, ChangeFlags {
  readonly kind?: (typeof KINDS)[number];
  readonly yes?: boolean;
  readonly limit: string;
}

export function addLimits(builder: CommandBuilder): void {
  const command = builder.command('limits', {
    summary: 'lists limits with their use, and changes them while everything runs',
    about:
      'A change holds in the whole cluster within 2.5 s, and outlives restarts until it is reset. It asks before it takes a limit away.',
    examples: [
      ['tidemill limits', 'all limits, what they hold back, and who set them'],
      ['tidemill limits set call-api --concurrency 5 --rate 100/1m', 'in place of what the code says'],
      ['tidemill limits set erp-api --rate none', 'takes the rate away; the other limits stay'],
      ['tidemill limits reset call-api', 'brings the values of the code back'],
      ['tidemill limits keys call-api', 'the keys that have waited longest'],
      ['tidemill limits breaker erp-api open', 'stops all starts for the pause of the breaker'],
    ],
  });
  command
    .addArgument(
      command
        .createArgument('[action]', 'what to do')
        .choices([...ACTIONS])
        .default('list'),
    )
    .argument('[name]', 'the job, reactive task, document schedule or shared limit')
    .addArgument(command.createArgument('[state]', 'of the breaker').choices([...STATES]))
    .addOption(
      command
        .createOption('--kind <kind>', 'the kind of the name, if it is not of a job or a shared limit')
        .choices([...KINDS]),
    )
    .option('--yes', 'do not ask for confirmation')
    .option('--limit <number>', 'keys: how many to list, up to 1000', '20');
  withChanges(command);
  withStore(command).action(
    builder.action((action: Action, name: string | undefined, state: State | undefined, flags: Flags) => {
      checkArguments(action, name, state, flags);
      return onStore(flags, builder.terminal, 'work', (session) =>
        name === undefined ? list(session) : act(session, { action, name, state, flags }),
      );
    }),
  );
}

function checkArguments(
  action: Action,
  name: string | undefined,
  state: State | undefined,
  flags: Flags,
): void {
  if (action !== 'set' && changes(flags))
    throw new CliError(Exit.USAGE, 'To change a limit: tidemill limits set <name>, with these options.');
  if ((action === 'list') !== (name === undefined))
    throw new CliError(
      Exit.USAGE,
      action === 'list'
        ? 'tidemill limits lists all; leave the name out.'
        : `Pass a name: tidemill limits ${action} <name>.`,
    );
  if ((action === 'breaker') === (state === undefined))
    throw new CliError(
      Exit.USAGE,
      action === 'breaker'
        ? 'Pass open or closed: tidemill limits breaker <name> open.'
        : `tidemill limits ${action} takes a name only.`,
    );
}

interface Asked {
  readonly action: Action;
  readonly name: string;
  readonly state: State | undefined;
  readonly flags: Flags;
}

async function act(session: Session, { action, name, state, flags }: Asked): Promise<Exit | undefined> {
  const target: LimitTarget = flags.kind === undefined ? name : { kind: flags.kind, name };
  if (action === 'set') return set(session, target, changesOf(flags), flags.yes);
  const known = await session.mill.limits.get(target);
  if (known === undefined) {
    session.out.note(`There is no limit of the name "${name}".${kindHint(flags)}`);
    session.out.document(null);
    return Exit.NOTHING_FOUND;
  }
  if (action === 'reset') return reset(session, target, known, flags.yes);
  if (action === 'keys') return keys(session, known, flags);
  return turn(session, target, known, state ?? 'closed');
}

const kindHint = ({ kind }: Flags): string =>
  kind === undefined ? ' For a reactive task or a document schedule, pass --kind.' : '';

async function list({ mill, out }: Session): Promise<undefined> {
  const limits = await mill.limits.list();
  out.lines(limits);
  if (limits.length === 0) out.note('No limits.');
  else out.table(LIMIT_COLUMNS, limits);
  for (const { name, kind, differs } of limits)
    if (differs !== undefined)
      out.note(
        `${limitTitle({ kind, name })}: ${differs.by} defines it differently (${limitsText(differs.limits)}); the latest start wins.`,
      );
  return undefined;
}

async function set(
  session: Session,
  target: LimitTarget,
  wanted: LimitChanges,
  yes: boolean | undefined,
): Promise<Exit | undefined> {
  const { mill, out } = session;
  const before = await mill.limits.get(target);
  const title = titleOf(target, before);
  if (takesAway(wanted)) {
    const question = `Take a limit away from the ${title}? It has: ${limitsText(before?.limits ?? {})}.`;
    if (!(await confirmed(session, question, yes))) return Exit.FAILED;
  }
  const about = {
    action: 'limits.set',
    target: title,
    details: { before: before?.limits ?? {}, changes: wanted },
  };
  const after = await recordedChange(session, about, before, 'set', () => mill.limits.set(target, wanted));
  out.print(`The ${title} is now: ${limitsText(after.limits)}. To undo: ${commandOf('reset', after)}`);
  out.document(after);
  return undefined;
}

async function reset(
  session: Session,
  target: LimitTarget,
  before: LimitState,
  yes: boolean | undefined,
): Promise<Exit | undefined> {
  const { mill, out } = session;
  const title = titleOf(target, before);
  if (before.source === 'set') {
    const question = `Reset the ${title} from "${limitsText(before.limits)}" to "${limitsText(before.code ?? {})}"?`;
    if (!(await confirmed(session, question, yes))) return Exit.FAILED;
  }
  const about = { action: 'limits.reset', target: title, details: { before: before.limits } };
  const after = await recordedChange(session, about, before, 'reset', () => mill.limits.reset(target));
  out.print(`The ${title} is as the code says: ${limitsText(after.limits)}.`);
  out.document(after);
  return undefined;
}

/** A command line about the limit; without arguments after the name. */
const commandOf = (action: Action, { kind, name }: LimitState): string =>
  `tidemill limits ${action} ${kind === 'job' || kind === 'shared' ? '' : `--kind ${kind} `}${shellArgument(name)}`;

const recordedChange = (
  session: Session,
  about: Parameters<typeof recordedAnswer>[1],
  before: LimitState | undefined,
  word: string,
  work: () => Promise<LimitState>,
): Promise<LimitState> =>
  recordedAnswer(session, about, async () => {
    const answer = await work();
    const details = { before: before?.limits ?? {}, after: answer.limits };
    return { answer, outcome: `${word}: ${limitsText(answer.limits)}`, details };
  });

const titleOf = (target: LimitTarget, known: LimitState | undefined): string =>
  known === undefined && typeof target === 'string'
    ? limitTitle({ kind: 'job', name: target })
    : limitTitle(known ?? (target as Exclude<LimitTarget, string>));

async function turn(
  session: Session,
  target: LimitTarget,
  known: LimitState,
  to: State,
): Promise<Exit | undefined> {
  const { mill, out } = session;
  const title = limitTitle(known);
  if (known.breaker === undefined) throw new CliError(Exit.USAGE, `The ${title} has no breaker.`);
  const before = known.breaker;
  const after = await recordedAnswer(
    session,
    { action: 'limits.breaker', target: `${title}, ${to}`, details: { before } },
    async () => {
      const answer = await mill.limits.breaker(target, to);
      return {
        answer,
        outcome: to === 'open' ? 'opened' : 'closed',
        details: { before, after: answer.breaker },
      };
    },
  );
  out.print(
    to === 'open'
      ? `The breaker of the ${title} is open: nothing starts until its pause is over. To end it: ${commandOf('breaker', after)} closed`
      : `The breaker of the ${title} is closed; work starts again.`,
  );
  out.document(after);
  return undefined;
}

async function keys(
  { mill, out }: Session,
  { kind, name, limits }: LimitState,
  flags: Flags,
): Promise<undefined> {
  if (limits.perKey === undefined)
    throw new CliError(
      Exit.USAGE,
      `The ${limitTitle({ kind, name })} has no keys to list; jobs and reactive tasks with limits per key have.`,
    );
  const limit = Number(flags.limit);
  if (!Number.isInteger(limit) || limit < 1 || limit > 1_000)
    throw new CliError(Exit.USAGE, `--limit must be a whole number from 1 to 1000, got "${flags.limit}".`);
  const found = await mill.limits.keys({ kind, name }, { limit });
  out.lines(found);
  if (found.length === 0) out.note('No key waits.');
  else out.table(KEY_COLUMNS, found);
  return undefined;
}
