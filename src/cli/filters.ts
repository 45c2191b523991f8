import type { Command } from 'commander';
import { JobStatus, TaskStatus, type JobsFilter, type TasksFilter } from '../index.js';
import { CliError, Exit } from './exit.js';
import { gathered } from './command-builder.js';

/** The options with which lists, retries and cancellations select work. */
export interface FilterFlags {
  readonly name?: readonly string[];
  readonly status?: readonly string[];
  readonly error?: string;
  readonly since?: string;
}

export const withFilter = (command: Command): Command =>
  command
    .optionsGroup('Filter:')
    .option('--name <name>', 'only this name (repeatable)', gathered)
    .option('--status <status>', 'only this status (repeatable)', gathered)
    .option('--error <text>', 'only failures that contain this text')
    .option('--since <duration>', 'only what was created within this time, such as 90s, 2h or 7d');

const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

export function milliseconds(option: string, text: string): number {
  // Sticky, so that a long number without a unit is not scanned again from each of its digits.
  const parts = [...text.trim().matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/guy)];
  if (parts.length > 0 && parts.map(([part]) => part).join('') === text.trim())
    return parts.reduce((sum, [, count = '0', unit = 's']) => sum + Number(count) * (UNITS[unit] ?? 0), 0);
  throw new CliError(Exit.USAGE, `--${option} must be a duration such as 90s, 2h or 1h30m, got "${text}".`);
}

function statuses<T extends string>(
  given: readonly string[] | undefined,
  known: readonly T[],
): readonly T[] | undefined {
  for (const status of given ?? [])
    if (!known.includes(status as T))
      throw new CliError(Exit.USAGE, `--status must be one of ${known.join(', ')}, got "${status}".`);
  return given as readonly T[] | undefined;
}

/** What jobs and tasks are filtered by alike. */
function common<T extends string>(
  flags: FilterFlags,
  known: readonly T[],
): Pick<JobsFilter, 'error' | 'createdAt'> & { readonly status?: readonly T[] } {
  const status = statuses(flags.status, known);
  return {
    ...(status === undefined ? {} : { status }),
    ...(flags.error === undefined ? {} : { error: flags.error }),
    ...(flags.since === undefined
      ? {}
      : { createdAt: { from: new Date(Date.now() - milliseconds('since', flags.since)) } }),
  };
}

export const jobsFilter = (flags: FilterFlags): JobsFilter => ({
  ...(flags.name === undefined ? {} : { name: flags.name }),
  ...common(flags, Object.values(JobStatus)),
});

export const tasksFilter = (flags: FilterFlags): TasksFilter => ({
  ...(flags.name === undefined ? {} : { task: flags.name }),
  ...common(flags, Object.values(TaskStatus)),
});

/** Describes the filter in words, for a question. */
export function inWords(flags: FilterFlags, statusesMeant: readonly string[]): string {
  const parts = [
    flags.name === undefined ? '' : `named ${flags.name.join(' or ')}`,
    statusesMeant.join(' or '),
    flags.error === undefined ? '' : `whose failure contains "${flags.error}"`,
    flags.since === undefined ? '' : `created in the last ${flags.since}`,
  ];
  return parts.filter((part) => part !== '').join(', ');
}
