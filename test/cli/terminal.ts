import { runProgram } from '../../src/cli/program.js';
import type { Terminal } from '../../src/cli/terminal.js';

export interface TerminalOptions {
  /** Columns of the terminal; left out: stdout and stderr are pipes. */
  readonly columns?: number;
  readonly env?: Readonly<Record<string, string>>;
  /** What the person in front of it answers; left out: nobody is there. */
  readonly answers?: readonly string[];
  readonly interrupt?: AbortSignal;
}

export interface Ran {
  readonly code: number;
  readonly out: string;
  readonly err: string;
  readonly questions: readonly string[];
}

/** Runs a command line in this process, in a terminal of the test's own. */
export async function tidemill(args: readonly string[], terminal: TerminalOptions = {}): Promise<Ran> {
  const { columns, env = {}, answers } = terminal;
  const written = { out: '', err: '' };
  const questions: string[] = [];
  const sink = (to: 'out' | 'err'): Terminal['stdout'] => ({
    ...(columns === undefined ? {} : { isTTY: true, columns }),
    write: (text) => (written[to] += text),
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

/** The lines of JSON that a list prints. */
export const linesOf = <T>({ out }: Ran): T[] =>
  out
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as T);
