import { outcomeOf } from '../../dashboard/actions/operations.js';
import type { AuditEntry, DocumentSchedule, DocumentsPage, DocumentState } from '../../index.js';
import { onStore, withStore, type Session, type StoreFlags } from '../context.js';
import { CliError, Exit } from '../exit.js';
import { jobsFilter, tasksFilter, withFilter, type FilterFlags } from '../filters.js';
import type { CommandBuilder } from '../command-builder.js';
import {
  AUDIT_COLUMNS,
  DOCUMENT_COLUMNS,
  INSTANCE_COLUMNS,
  JOB_COLUMNS,
  SCHEDULE_COLUMNS,
  TASK_COLUMNS,
} from '../render/work.js';
import type { Column } from '../render/table.js';

const KINDS = ['jobs', 'tasks', 'schedules', 'instances', 'audit'] as const;
type Kind = (typeof KINDS)[number];

interface Flags extends StoreFlags, FilterFlags {
  readonly documents?: string;
  readonly limit: string;
  readonly cursor?: string;
  readonly sort: 'created' | 'updated' | 'due';
  readonly asc?: boolean;
}

export function addLs(builder: CommandBuilder): void {
  const command = builder.command('ls', {
    summary: 'lists jobs, reactive tasks, schedules, documents, instances or the audit log',
    examples: [
      ['tidemill ls', 'the newest jobs'],
      ['tidemill ls --status failed --name send-email', 'failed jobs of one name'],
      ['tidemill ls tasks --error timeout --since 1h', 'reactive tasks'],
      ['tidemill ls schedules', 'recurring jobs, and when they run next'],
      ['tidemill ls audit', 'who changed what by hand'],
      ['tidemill ls --documents tenants', 'documents of a collection or table, next due first'],
      [`tidemill ls --status failed --json | jq -r .id`, 'for other programs: one line of JSON per job'],
    ],
  });
  command
    .addArgument(
      command
        .createArgument('[kind]', 'what to list')
        .choices([...KINDS])
        .default('jobs'),
    )
    .option('--documents <collection>', 'list documents with schedules in this collection or table');
  withFilter(command);
  command
    .optionsGroup('Order:')
    .option('--limit <number>', 'how many to list, up to 1000', '20')
    .addOption(
      command
        .createOption('--sort <time>', 'sort by this time')
        .choices(['created', 'updated', 'due'])
        .default('created'),
    )
    .option('--asc', 'oldest first')
    .option('--cursor <text>', 'continue where an earlier list ended');
  withStore(command).action(
    builder.action((kind: Kind, flags: Flags) =>
      onStore(flags, builder.terminal, 'work', (session) =>
        list(session, flags.documents === undefined ? kind : 'documents', flags),
      ),
    ),
  );
}

interface Page<Row> {
  readonly items: readonly Row[];
  readonly next?: string | null;
  readonly partial?: true;
}

async function list(session: Session, kind: Kind | 'documents', flags: Flags): Promise<undefined> {
  const { mill } = session;
  const lists: Readonly<Record<typeof kind, () => Promise<void>>> = {
    jobs: async () => {
      const found = await mill.jobs.find(jobsFilter(flags), { ...page(flags), sort: jobSort(flags) });
      print(session, kind, JOB_COLUMNS, found);
      if (found.items.length === 0) await explainEmpty(session);
    },
    tasks: async () => {
      const found = await mill.tasks.find(tasksFilter(flags), { ...page(flags), sort: taskSort(flags) });
      print(session, kind, TASK_COLUMNS, found);
    },
    schedules: async () => print(session, kind, SCHEDULE_COLUMNS, { items: await mill.schedules.list() }),
    audit: async () => print(session, kind, AUDIT_COLUMNS, await entries(session, flags)),
    instances: async () => print(session, kind, INSTANCE_COLUMNS, { items: await mill.instances() }),
    documents: async () => {
      const found = await documents(session, flags);
      print(session, kind, DOCUMENT_COLUMNS, found);
      if (found.items.length === 0 && flags.status === undefined) await explainNoneDue(session, flags);
    },
  };
  await lists[kind]();
  return undefined;
}

/** A wrong database looks like one without any work, so it says what to check. */
async function explainEmpty({ mill, store, out, place }: Session): Promise<void> {
  const [{ total }, instances] = await Promise.all([mill.jobs.stats(), mill.instances()]);
  if (total > 0 || instances.length > 0) return;
  const names = store.kind === 'mongodb' ? '--jobs-collection and --globals-collection' : '--schema';
  out.note(
    `${place} has no jobs at all, and no instance has used it lately. If you expected some, check the database in the URL, ${names}.`,
  );
}

/** The list has documents with a due time only, so one without any may have all that the schedule has ended. */
async function explainNoneDue(session: Session, flags: Flags): Promise<void> {
  const ended = await schedule(session, flags).count({ state: ['failed', 'parked'] });
  if (ended === 0) return;
  const has = ended === 1 ? '1 document there has' : `${String(ended)} documents there have`;
  session.out.note(`${has} no due time: to list them, pass --status failed --status parked.`);
}

async function entries({ mill }: Session, flags: Flags): Promise<Page<AuditEntry>> {
  const [found, now] = await Promise.all([mill.audit.list(page(flags)), mill.time()]);
  return { ...found, items: found.items.map((entry) => ({ ...entry, outcome: outcomeOf(entry, now) })) };
}

const schedule = ({ mill }: Session, flags: Flags): DocumentSchedule =>
  mill.documents({ collection: flags.documents ?? '', onDocument: () => undefined });

function documents(session: Session, flags: Flags): Promise<DocumentsPage> {
  const state = flags.status as readonly DocumentState[] | undefined;
  return schedule(session, flags).find(
    {
      ...(flags.error === undefined ? {} : { error: flags.error }),
      ...(state === undefined ? {} : { state }),
    },
    page(flags),
  );
}

function print<Row>(
  { out, terminal }: Session,
  kind: string,
  columns: readonly Column<Row>[],
  found: Page<Row>,
): void {
  out.lines(found.items);
  if (found.items.length > 0) out.table(columns, found.items);
  else out.note(kind === 'audit' ? 'No changes by hand yet.' : `No ${kind}.`);
  if (found.partial === true) out.note('The search reached its time limit; there may be more.');
  const next = found.next ?? undefined;
  if (next === undefined) return;
  out.note(terminal.stdout.isTTY === true ? `More: --cursor ${next}` : `next cursor: ${next}`);
}

function page({ limit, cursor }: Flags): { limit: number; cursor?: string } {
  const count = Number(limit);
  if (!Number.isInteger(count) || count < 1 || count > 1_000)
    throw new CliError(Exit.USAGE, `--limit must be a whole number from 1 to 1000, got "${limit}".`);
  return { limit: count, ...(cursor === undefined ? {} : { cursor }) };
}

const direction = ({ asc }: Flags): 1 | -1 => (asc === true ? 1 : -1);
const jobSort = (flags: Flags): Partial<Record<'createdAt' | 'updatedAt' | 'nextRunAt', 1 | -1>> => ({
  [flags.sort === 'due' ? 'nextRunAt' : `${flags.sort}At`]: direction(flags),
});
const taskSort = (flags: Flags): Partial<Record<'createdAt' | 'updatedAt' | 'scheduledAt', 1 | -1>> => ({
  [flags.sort === 'due' ? 'scheduledAt' : `${flags.sort}At`]: direction(flags),
});
