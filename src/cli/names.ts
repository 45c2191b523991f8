import { suggestion } from '../mill/tools.js';
import type { Session } from './context.js';
import { CliError, Exit } from './exit.js';

/** The kinds that a name on the command line can be of. */
export const NAME_KINDS = ['job', 'task', 'schedule'] as const;
export type NameKind = (typeof NAME_KINDS)[number];

/** The names of jobs and of reactive tasks that the store or an instance knows. */
export async function knownNames({
  mill,
  store,
}: Session): Promise<{ jobs: Set<string>; tasks: Set<string> }> {
  const [instances, stats, tasks] = await Promise.all([
    mill.instances(),
    mill.jobs.stats(),
    store.reactive === undefined ? [] : mill.tasks.stats(),
  ]);
  return {
    jobs: new Set([...instances.flatMap(({ names }) => names), ...Object.keys(stats.names)]),
    tasks: new Set([...instances.flatMap((one) => one.tasks), ...tasks.map(({ task }) => task)]),
  };
}

/**
 * Returns whether a name is of jobs or of tasks. An unknown name counts as one of jobs, since it may be about to be
 * used.
 */
export async function kindOfName(session: Session, name: string): Promise<'job' | 'task'> {
  const { jobs, tasks } = await knownNames(session);
  if (jobs.has(name) && tasks.has(name))
    throw new CliError(
      Exit.USAGE,
      `"${name}" names jobs and reactive tasks; pass --kind job or --kind task.`,
    );
  if (!jobs.has(name) && !tasks.has(name)) {
    const meant = suggestion(name, [...jobs, ...tasks]);
    session.out.note(
      `No job, task or instance has the name "${name}".${meant} Until one has, it counts as a name of jobs.`,
    );
  }
  return tasks.has(name) ? 'task' : 'job';
}
