import { OptionError, TidemillError } from '../index.js';

/** The exit codes of the process. docs/cli.md has the same list. */
export const Exit = {
  OK: 0,
  FAILED: 1,
  USAGE: 2,
  NOTHING_FOUND: 3,
  PROBLEMS_FOUND: 4,
} as const;
export type Exit = (typeof Exit)[keyof typeof Exit];

/** If the reader of the output is gone: what a shell reports for a program that SIGPIPE ended (128 + 13). */
export const CLOSED_PIPE = 141;

/** Ends a command with a message and an exit code. */
export class CliError extends Error {
  readonly exit: Exit;
  constructor(exit: Exit, message: string) {
    super(message);
    this.exit = exit;
  }
}

const NOTHING: ReadonlySet<string> = new Set(['SCHEDULE_MISSING', 'JOB_MISSING', 'TASK_MISSING']);

export function exitOf(error: unknown): Exit {
  if (error instanceof CliError) return error.exit;
  if (error instanceof OptionError) return Exit.USAGE;
  if (error instanceof TidemillError && NOTHING.has(error.code)) return Exit.NOTHING_FOUND;
  return Exit.FAILED;
}
