import { runProgram } from '../../src/cli/program.js';
import type { Terminal } from '../../src/cli/terminal.js';

export interface TerminalOptions {
  /** Columns of the terminal; if absent, stdout and stderr are pipes. */
  readonly columns?: number;
  readonly env?: Readonly<Record<string, string>>;
  /** What the user answers to prompts; if absent, there is no user. */
  readonly answers?: readonly string[];
  readonly interrupt?: AbortSignal;
  /** Called with each text on stderr. */
  readonly onNote?: (text: string) => void;
}

export interface Ran {
  readonly code: number;
  readonly out: string;
  readonly err: string;
  readonly questions: readonly string[];
}

/** Runs a command line in this process, with a simulated terminal. */
export async function tidemill(args: readonly string[], terminal: TerminalOptions = {}): Promise<Ran> {
  const { columns, env = {}, answers } = terminal;
  const written = { out: '', err: '' };
  const questions: string[] = [];
  const sink = (to: 'out' | 'err'): Terminal['stdout'] => ({
    ...(columns === undefined ? {} : { isTTY: true, columns }),
    write: (text) => {
      written[to] += text;
      if (to === 'err') terminal.onNote?.(text);
    },
  });
  const code = await runProgram(args, {
    stdout: sink('out'),
    stderr: sink('err'),
    env,
    entry: '',
    interactive: answers !== undefined,
    ask: (question) => {
      questions.push(question);
      return Promise.resolve(answers?.[questions.length - 1] ?? '');
    },
    keys: () => () => undefined,
    interrupted: () => terminal.interrupt ?? new AbortController().signal,
  });
  return { code, ...written, questions };
}

/** The lines of JSON that a list command prints. */
export const linesOf = <T>({ out }: Ran): T[] =>
  out
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as T);
