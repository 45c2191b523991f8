import type { Command } from 'commander';
import { applyEdit, versionsOf } from '../../dashboard/redaction/edit.js';
import { Redactor } from '../../dashboard/redaction/redact.js';
import { SECRETS } from '../../dashboard/redaction/secret-names.js';
import type { Job } from '../../index.js';
import { recorded } from '../audit.js';
import { confirmed } from '../confirm.js';
import { onStore, withStore, type Session, type StoreFlags } from '../context.js';
import { CliError, Exit } from '../exit.js';
import { inWords, jobsFilter, tasksFilter, withFilter, type FilterFlags } from '../filters.js';
import { findWork } from '../find-work.js';
import type { CommandTexts, CommandBuilder } from '../command-builder.js';
import { readPayload } from '../payload.js';
import { progressBar } from '../render/progress.js';
import { clean, plural } from '../render/text.js';

type Change = 'retry' | 'cancel';

interface Flags extends StoreFlags, FilterFlags {
  readonly kind: 'jobs' | 'tasks';
  readonly all?: boolean;
  readonly yes?: boolean;
  readonly dryRun?: boolean;
  readonly data?: string;
}

/** The states that each change applies to. Work in other states is left alone. */
const STATUSES = {
  retry: { jobs: ['failed', 'cancelled'], tasks: ['failed'] },
  cancel: { jobs: ['pending', 'processing'], tasks: [] },
} as const;

export function addRetry(builder: CommandBuilder): void {
  const command = add(builder, 'retry', {
    summary: 'runs failed or cancelled work again, with a fresh sequence of attempts',
    about: 'Takes ids or a filter. For a filter it shows the count and asks first.',
    examples: [
      ['tidemill retry 6919b0f2c4', 'one job'],
      [`tidemill retry 6919b0f2c4 --data '{"to":"ada@example.com"}'`, 'one job, with a corrected payload'],
      ['tidemill retry sync-order/1042', 'the reactive task of one document'],
      ['tidemill retry --name send-email --error ETIMEDOUT', 'all jobs that failed with this error'],
      ['tidemill retry --kind tasks --name sync-order --yes', 'all failed tasks of a name, without asking'],
    ],
  });
  command.optionsGroup('One job:').option('--data <json>', 'replace its payload: JSON, or @file');
}

export function addCancel(builder: CommandBuilder): void {
  add(builder, 'cancel', {
    summary: 'cancels pending jobs, and tells running ones to stop',
    about: 'Takes ids or a filter. For a filter it shows the count and asks first.',
    examples: [
      ['tidemill cancel 6919b0f2c4', 'one job, whichever instance runs it'],
      ['tidemill cancel --name send-email --status pending', 'all pending jobs of a name'],
      ['tidemill cancel --all --dry-run', 'only count'],
    ],
  });
}

function add(builder: CommandBuilder, change: Change, texts: CommandTexts): Command {
  const command = builder.command(`${change} [ids...]`, texts);
  command.option('--yes', 'do not ask for confirmation').option('--dry-run', 'only count; change nothing');
  withFilter(command)
    .addOption(
      command
        .createOption('--kind <kind>', 'what the filter selects')
        .choices(['jobs', 'tasks'])
        .default('jobs'),
    )
    .option('--all', 'select everything of the kind');
  withStore(command).action(
    builder.action((ids: readonly string[], flags: Flags) =>
      onStore(flags, builder.terminal, 'work', (session) =>
        ids.length > 0
          ? changeEach(session, change, ids, dataOf(ids, flags))
          : changeMany(session, change, flags),
      ),
    ),
  );
  return command;
}

/** The payload to retry with; one payload is for one job. */
function dataOf(ids: readonly string[], { data }: Flags): { readonly data: unknown } | undefined {
  if (data === undefined) return undefined;
  if (ids.length === 1) return { data: readPayload(data) };
  throw new CliError(Exit.USAGE, '--data is for one job; pass one id.');
}

interface Changed {
  readonly id: string;
  readonly name?: string;
  readonly outcome: string;
}

/** What each outcome means, in words. */
const WORDS: Readonly<Record<string, string>> = {
  retried: 'runs again',
  live: 'not retried: another job with its unique key is live',
  unfinished: 'not retried: it has not ended yet',
  finished: 'it has already ended',
  cancelled: 'cancelled',
  requested: 'running; its handler was told to stop',
  missing: 'not found',
  refused: 'reactive tasks cannot be cancelled; pause the name, or change the document',
};
const DONE: ReadonlySet<string> = new Set(['retried', 'cancelled', 'requested']);

async function changeEach(
  session: Session,
  change: Change,
  ids: readonly string[],
  edit: { readonly data: unknown } | undefined,
): Promise<Exit> {
  const { out } = session;
  const answers: Changed[] = [];
  for (const id of ids) {
    const changed = await changeOne(session, change, id, edit);
    answers.push(changed);
    const words = WORDS[changed.outcome] ?? changed.outcome;
    out.print(`${id}${changed.name === undefined ? '' : ` (${clean(changed.name)})`}: ${words}`);
  }
  out.lines(answers);
  if (answers.every(({ outcome }) => DONE.has(outcome))) return Exit.OK;
  return answers.every(({ outcome }) => outcome === 'missing') ? Exit.NOTHING_FOUND : Exit.FAILED;
}

async function changeOne(
  session: Session,
  change: Change,
  id: string,
  edit: { readonly data: unknown } | undefined,
): Promise<Changed> {
  const { mill } = session;
  const work = await findWork(session, id);
  if (work === undefined || work.kind === 'document') return { id, outcome: 'missing' };
  if (work.kind === 'job') {
    const { name } = work.job;
    if (edit !== undefined) return { id, name, outcome: await retryEdited(session, work.job, edit.data) };
    const act = async (): Promise<string> => (await mill.jobs[change](id)).outcome;
    return {
      id,
      name,
      outcome: await recorded(session, { action: `jobs.${change}`, target: `${name} ${id}` }, act),
    };
  }
  const { id: key, task: name } = work.task;
  if (edit !== undefined)
    throw new CliError(Exit.USAGE, '--data is for jobs; the data of a reactive task is its document.');
  if (change === 'cancel') return { id, name, outcome: 'refused' };
  const act = async (): Promise<string> =>
    (await mill.tasks.retryMany({ id: key })).count > 0 ? 'retried' : 'missing';
  return { id, name, outcome: await recorded(session, { action: 'tasks.retry', target: id }, act) };
}

/** Values of the payload that read as before keep their type, such as a date. */
async function retryEdited(session: Session, job: Job, edited: unknown): Promise<string> {
  const redactor = new Redactor(SECRETS);
  const data = applyEdit(job.data, JSON.parse(JSON.stringify(job.data)), edited);
  const entry = {
    action: 'jobs.retry',
    target: `${job.name} ${job.id}, with a corrected payload`,
    details: versionsOf(job.data, data, (value) => redactor.value(value)),
  };
  const outcome = await recorded(
    session,
    entry,
    async () => (await session.mill.jobs.retry(job.id, { data })).outcome,
  );
  if (outcome === 'retried')
    session.out.note("--data is checked by no schema here; if it does not fit the job's, its attempts fail.");
  const gone = outcome === 'retried' ? missingKeys(job.data, data) : [];
  if (gone.length > 0)
    session.out.note(
      `--data replaced the whole payload, which no longer has: ${gone.map((key) => clean(key)).join(', ')}.`,
    );
  return outcome;
}

/** The keys of the stored payload that the new one does not have: easily forgotten, since nothing is merged. */
function missingKeys(stored: unknown, data: unknown): readonly string[] {
  const keys = (value: unknown): readonly string[] =>
    typeof value === 'object' && value !== null ? Object.keys(value) : [];
  const kept = new Set(keys(data));
  return Array.isArray(stored) ? [] : keys(stored).filter((key) => !kept.has(key));
}

async function changeMany(session: Session, change: Change, flags: Flags): Promise<Exit> {
  const { out, terminal } = session;
  if (flags.data !== undefined) throw new CliError(Exit.USAGE, '--data is for one job; pass one id.');
  const many = manyOf(session, change, flags);
  const count = await many.count();
  const about = `${plural(count, flags.kind === 'jobs' ? 'job' : 'task')} (${many.words})`;
  if (count === 0 || flags.dryRun === true) {
    out.print(
      count === 0
        ? `Nothing to ${change}: no ${flags.kind} match (${many.words}).`
        : `Would ${change} ${about}.`,
    );
    out.document({ [change === 'retry' ? 'retried' : 'cancelled']: 0, matching: count });
    return count === 0 ? Exit.NOTHING_FOUND : Exit.OK;
  }
  if (!(await confirmed(session, `${change === 'retry' ? 'Retry' : 'Cancel'} ${about}?`, flags.yes)))
    return Exit.FAILED;
  const bar = progressBar(terminal.stderr, count);
  let done = 0;
  const entry = { action: `${flags.kind}.${change}Many`, target: many.words };
  await recorded(session, entry, async () => {
    done = await many.change((so) => bar.show(so));
    return plural(done, 'changed', 'changed');
  }).finally(() => bar.end());
  out.print(
    `${change === 'retry' ? 'Retried' : 'Cancelled'} ${plural(done, flags.kind === 'jobs' ? 'job' : 'task')}.`,
  );
  out.document({ [change === 'retry' ? 'retried' : 'cancelled']: done, matching: count });
  return Exit.OK;
}

interface Many {
  readonly words: string;
  readonly count: () => Promise<number>;
  readonly change: (onProgress: (count: number) => void) => Promise<number>;
}

function manyOf({ mill }: Session, change: Change, flags: Flags): Many {
  const said = [flags.name, flags.status, flags.error, flags.since].some((flag) => flag !== undefined);
  if (said === (flags.all === true))
    throw new CliError(
      Exit.USAGE,
      said
        ? 'Pass either --all or a filter, not both.'
        : `Nothing to ${change} was selected. Pass ids, a filter such as --name, or --all.`,
    );
  const allowed: readonly string[] = STATUSES[change][flags.kind];
  if (allowed.length === 0)
    throw new CliError(
      Exit.USAGE,
      'Reactive tasks cannot be cancelled; pause the name, or change the document.',
    );
  const wanted = allowed.filter((status) => flags.status?.includes(status) ?? true);
  if (wanted.length === 0)
    throw new CliError(
      Exit.USAGE,
      `Only work that is ${allowed.join(' or ')} can be ${change === 'retry' ? 'retried' : 'cancelled'}.`,
    );
  const narrowed = { ...flags, status: wanted };
  const words = inWords(flags, wanted);
  if (flags.kind === 'tasks') {
    const filter = tasksFilter(narrowed);
    return {
      words,
      count: () => mill.tasks.count(filter),
      change: async () => (await mill.tasks.retryMany(filter)).count,
    };
  }
  const filter = jobsFilter(narrowed);
  const act = change === 'retry' ? mill.jobs.retryMany.bind(mill.jobs) : mill.jobs.cancelMany.bind(mill.jobs);
  return {
    words,
    count: () => mill.jobs.count(filter),
    change: async (onProgress) => (await act(filter, { onProgress })).count,
  };
}
