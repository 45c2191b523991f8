import { createInterface } from 'node:readline/promises';

/** The part of an output stream that is used here. */
export interface Sink {
  readonly isTTY?: boolean;
  readonly columns?: number;
  readonly rows?: number;
  write(text: string): unknown;
}

/** Everything that a command knows of its environment, so that tests can provide their own. */
export interface Terminal {
  readonly stdout: Sink;
  readonly stderr: Sink;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The file that was started; the demo starts it again for its child processes. */
  readonly entry: string;
  /** Whether there is a user who can be asked. */
  readonly interactive: boolean;
  ask(question: string): Promise<string>;
  /** Calls `pressed` for each key, if stdin is a terminal. The returned function ends that. */
  keys(pressed: (key: string) => void): () => void;
  /**
   * Aborts at Ctrl-C and SIGTERM, which from then on do not end the process by themselves, and when the reader of the
   * output is gone.
   */
  interrupted(): AbortSignal;
}

/**
 * The terminal of this process. `closed` aborts when the reader of stdout or stderr is gone, as in `tidemill ls | head`.
 * From then on nothing is written, and the command ends as if interrupted: it finishes what it changes, and closes its
 * store.
 */
export function processTerminal(): { readonly terminal: Terminal; readonly closed: AbortSignal } {
  const pipes = new AbortController();
  const closed = pipes.signal;
  for (const stream of [process.stdout, process.stderr])
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EPIPE') throw error;
      pipes.abort();
    });
  return { terminal: terminalOf(closed), closed };
}

const sinkOf = (stream: NodeJS.WriteStream, closed: AbortSignal): Sink => ({
  get isTTY() {
    return stream.isTTY;
  },
  get columns() {
    return stream.columns;
  },
  get rows() {
    return stream.rows;
  },
  write: (text) => !closed.aborted && stream.write(text),
});

function terminalOf(closed: AbortSignal): Terminal {
  return {
    stdout: sinkOf(process.stdout, closed),
    stderr: sinkOf(process.stderr, closed),
    env: process.env,
    entry: process.argv[1] ?? '',
    interactive: process.stdin.isTTY && process.stderr.isTTY,
    ask: async (question) => {
      const lines = createInterface({ input: process.stdin, output: process.stderr });
      try {
        return await lines.question(question);
      } finally {
        lines.close();
      }
    },
    keys: (pressed) => listenToKeys(pressed),
    interrupted: () => {
      const end = new AbortController();
      for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => end.abort());
      return AbortSignal.any([end.signal, closed]);
    },
  };
}

function listenToKeys(pressed: (key: string) => void): () => void {
  const { stdin } = process;
  if (!stdin.isTTY) return () => undefined;
  const onData = (data: Buffer): void => pressed(data.toString());
  stdin.setRawMode(true).on('data', onData).resume();
  return () => {
    stdin.off('data', onData).setRawMode(false).pause();
  };
}
