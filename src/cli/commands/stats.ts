import { JobStatus, TaskStatus, type FailureGroup } from '../../index.js';
import { onStore, withStore, type Session, type StoreFlags } from '../context.js';
import type { CommandBuilder } from '../command-builder.js';
import type { Column } from '../render/table.js';
import { clean, plural } from '../render/text.js';
import { relative, span } from '../render/time.js';
import { styleOf } from '../render/work.js';

interface Flags extends StoreFlags {
  readonly errors: boolean;
}

export function addStats(builder: CommandBuilder): void {
  const command = builder.command('stats', {
    summary: 'counts work by name, and shows which instances run it and what fails',
    examples: [
      ['tidemill stats', 'everything'],
      ['tidemill stats --json | jq .jobs', 'for other programs'],
    ],
  });
  withStore(command.option('--no-errors', 'do not group failures')).action(
    builder.action((flags: Flags) =>
      onStore(flags, builder.terminal, 'work', (session) => stats(session, flags)),
    ),
  );
}

interface Line {
  readonly kind: 'job' | 'task';
  readonly name: string;
  readonly counts: Readonly<Record<string, number>>;
  readonly capped: readonly string[];
  readonly instances: number;
}

async function stats(session: Session, flags: Flags): Promise<undefined> {
  const { mill, out, place } = session;
  const [jobs, instances, tasks] = await Promise.all([mill.jobs.stats(), mill.instances(), tasksOf(session)]);
  const live = instances.filter(({ alive }) => alive);
  const errors = flags.errors ? await errorsOf(session) : [];
  const runs = (field: 'names' | 'tasks', name: string): number =>
    live.filter((one) => one[field].includes(name)).length;
  const lines: Line[] = [
    ...Object.entries(jobs.names).map(([name, counts]) => ({
      kind: 'job' as const,
      name,
      counts,
      capped: jobs.capped.filter((one) => one.name === name).map(({ status }) => status),
      instances: runs('names', name),
    })),
    ...tasks.stats.map(({ task, counts, capped }) => ({
      kind: 'task' as const,
      name: task,
      counts,
      capped,
      instances: runs('tasks', task),
    })),
  ];
  out.document({ store: place, jobs, tasks: tasks.stats, planning: tasks.planning, instances, errors });
  out.print(
    out.paint('bold', place),
    `${plural(live.length, 'live instance')}, about ${plural(jobs.total, 'job')}${planned(tasks.planning)}`,
    '',
  );
  if (lines.length === 0) out.print('No work yet.');
  else out.table(columns(lines), lines);
  if (errors.length > 0) {
    out.print('', out.paint('bold', 'What fails'));
    out.table(ERROR_COLUMNS, errors);
  }
  return undefined;
}

async function tasksOf({ mill, store }: Session): Promise<{
  readonly stats: Awaited<ReturnType<typeof mill.tasks.stats>>;
  readonly planning: Awaited<ReturnType<typeof mill.tasks.planning>> | null;
}> {
  if (store.reactive === undefined) return { stats: [], planning: null };
  const [taskStats, planning] = await Promise.all([mill.tasks.stats(), mill.tasks.planning()]);
  return { stats: taskStats, planning: taskStats.length === 0 ? null : planning };
}

function planned(planning: Awaited<ReturnType<typeof tasksOf>>['planning']): string {
  if (planning === null) return '';
  const lag = planning.lagMs === null ? '' : `, ${span(planning.lagMs)} behind`;
  return `; ${planning.leader === null ? 'no instance plans' : `${clean(planning.leader)} plans`}${lag}`;
}

async function errorsOf({ mill, store }: Session): Promise<readonly FailureGroup[]> {
  const [jobs, tasks] = await Promise.all([
    mill.jobs.errors(),
    store.reactive === undefined ? { groups: [] } : mill.tasks.errors(),
  ]);
  return [...jobs.groups, ...tasks.groups].sort((a, b) => b.count - a.count).slice(0, 10);
}

const STATUSES: readonly string[] = [
  ...new Set<string>([...Object.values(JobStatus), ...Object.values(TaskStatus)]),
];

/** Shows only the states that contain work. */
function columns(lines: readonly Line[]): readonly Column<Line>[] {
  const used = STATUSES.filter((status) => lines.some(({ counts }) => (counts[status] ?? 0) > 0));
  return [
    { head: 'NAME', text: ({ name }) => name },
    { head: 'KIND', text: ({ kind }) => kind, style: () => 'dim' },
    ...used.map((status): Column<Line> => ({
      head: status.toUpperCase(),
      text: ({ counts, capped }) =>
        `${(counts[status] ?? 0).toLocaleString('en-US')}${capped.includes(status) ? '+' : ''}`,
      align: 'right',
      style: ({ counts }) => ((counts[status] ?? 0) === 0 ? 'dim' : styleOf(status)),
    })),
    {
      head: 'INSTANCES',
      text: ({ instances }) => String(instances),
      align: 'right',
      style: ({ instances }) => (instances === 0 ? 'yellow' : undefined),
    },
  ];
}

const ERROR_COLUMNS: readonly Column<FailureGroup>[] = [
  { head: 'COUNT', text: ({ count }) => count.toLocaleString('en-US'), align: 'right', style: () => 'red' },
  { head: 'NAME', text: ({ name }) => name },
  { head: 'LAST', text: ({ lastAt }) => relative(lastAt, Date.now()) },
  { head: 'ERROR', text: ({ pattern }) => pattern, grows: true },
];
