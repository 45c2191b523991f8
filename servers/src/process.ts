import { spawn, type ChildProcess } from 'node:child_process';
import { open, readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { remedyFor, tellingLines } from './diagnosis.js';
import { ServerError } from './errors.js';
import { forgetServer, watchServer } from './guard.js';
import { until } from './until.js';

export interface User {
  readonly uid: number;
  readonly gid: number;
}

export interface ProcessSpec {
  /** Its name in messages. */
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd: string;
  readonly logFile: string;
  /** The log line that tells that the server listens. A port that answers could belong to another process. */
  readonly ready: RegExp;
  readonly user?: User | undefined;
  /** The signal that ends it without leaving anything behind in the system. @default 'SIGKILL' */
  readonly endSignal?: NodeJS.Signals;
}

const graceMs = 10_000;

/** One running server: its start, its signals, and the reason for its end. */
export class ServerProcess {
  readonly #spec: ProcessSpec;
  readonly #child: ChildProcess;
  readonly #ended: Promise<void>;
  #end: string | undefined;

  /** Resolves when the server listens. If it ends before that, rejects with the lines of its log that tell why. */
  static async launch(spec: ProcessSpec): Promise<ServerProcess> {
    const log = await open(spec.logFile, 'w');
    const launched = new ServerProcess(spec, log.fd);
    // The child has its own copy of the descriptor.
    await log.close();
    try {
      await launched.#untilReady();
    } catch (error) {
      await launched.end();
      throw error;
    }
    return launched;
  }

  private constructor(spec: ProcessSpec, logFd: number) {
    this.#spec = spec;
    this.#child = spawn(spec.command, spec.args, {
      cwd: spec.cwd,
      env: { ...process.env, ...spec.env },
      stdio: ['ignore', logFd, logFd],
      // In a process group of its own: Ctrl-C reaches only the parent, which then stops servers in its own order.
      detached: true,
      ...spec.user,
    });
    const { pid } = this.#child;
    if (pid !== undefined) watchServer(pid, spec.endSignal ?? 'SIGKILL');
    this.#ended = new Promise((resolve) => {
      const onEnd = (how: string): void => {
        this.#end ??= how;
        if (pid !== undefined) forgetServer(pid);
        resolve();
      };
      this.#child.once('error', (error) => {
        onEnd(error.message);
      });
      this.#child.once('exit', (code, signal) => {
        onEnd(signal ?? `exit code ${code}`);
      });
    });
  }

  get pid(): number {
    return this.#child.pid ?? -1;
  }

  kill(signal: NodeJS.Signals): void {
    if (this.#end === undefined) this.#child.kill(signal);
  }

  /** Resolves when the process is gone. A process that ignores the signal is killed after 10 s. */
  async end(signal: NodeJS.Signals = this.#spec.endSignal ?? 'SIGKILL'): Promise<void> {
    this.kill(signal);
    // A test may have paused it with SIGSTOP, and a paused process does not act on the signal.
    this.kill('SIGCONT');
    const grace = new AbortController();
    const tooLate = sleep(graceMs, undefined, { signal: grace.signal }).then(
      () => {
        this.kill('SIGKILL');
      },
      () => undefined,
    );
    await Promise.race([this.#ended, tooLate]);
    grace.abort();
    await this.#ended;
  }

  /** Throws if the process is gone, so that a wait for it ends with the reason instead of a timeout. */
  async assertRunning(): Promise<void> {
    if (this.#end === undefined) return;
    const { name, command, args, env, logFile } = this.#spec;
    const why = `${this.#end}\n${await tellingLines(logFile)}`;
    const settings = Object.entries(env ?? {}).map(([key, value]) => `${key}=${value}`);
    const byHand = [...settings, command, ...args].join(' ');
    throw new ServerError(`${name} did not start, or ended by itself.`, {
      why,
      fix: remedyFor(why) ?? `run it by hand to see more: ${byHand}`,
    });
  }

  async #untilReady(): Promise<void> {
    const { name, logFile, ready } = this.#spec;
    await until(`${name} to listen`, async () => {
      await this.assertRunning();
      return ready.test(await readFile(logFile, 'utf8')) || undefined;
    });
  }
}
