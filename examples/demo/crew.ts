import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import type { Report } from './child.js';

export interface CrewOptions {
  readonly env: Readonly<Record<string, string>>;
  readonly report: (from: string, report: Report) => void;
  /** A child ended that nobody had asked to. */
  readonly died: (name: string, code: number | null) => void;
}

interface Member {
  readonly child: ChildProcess;
  ready: boolean;
}

/** How long a child gets to stop before it is killed; more than its own `stop({ timeout })`. */
const PATIENCE_MS = 8_000;

/** The child processes: starts them, listens to them, and ends them. */
export class Crew {
  readonly #options: CrewOptions;
  readonly #members = new Map<string, Member>();
  #numbers = new Map<string, number>();

  constructor(options: CrewOptions) {
    this.#options = options;
  }

  /** Those that have said that they are ready. */
  alive(role: string): string[] {
    return [...this.#members]
      .filter(([name, { ready }]) => ready && name.startsWith(role))
      .map(([name]) => name);
  }

  start(role: 'worker' | 'producer', file: URL): string {
    const number = (this.#numbers.get(role) ?? 0) + 1;
    this.#numbers.set(role, number);
    const name = `${role}-${number}`;
    const child = fork(file, [name], {
      execArgv: ['--import', 'tsx'],
      env: { ...process.env, ...this.#options.env },
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    const member = { child, ready: false };
    this.#members.set(name, member);
    child.on('message', (message) => {
      const report = message as Report;
      if (report.kind === 'ready') member.ready = true;
      this.#options.report(name, report);
    });
    child.on('exit', (code) => {
      if (this.#members.delete(name)) this.#options.died(name, code);
    });
    return name;
  }

  /** As a crash would: no goodbye. */
  kill(name: string): void {
    const member = this.#members.get(name);
    this.#members.delete(name);
    member?.child.kill('SIGKILL');
  }

  /** Asks all of a role to stop, and waits until they are gone. */
  async stop(role: string): Promise<void> {
    const children = [...this.#members].filter(([name]) => name.startsWith(role));
    await Promise.all(
      children.map(async ([name, { child }]) => {
        this.#members.delete(name);
        if (child.exitCode !== null || child.signalCode !== null) return;
        const exited = once(child, 'exit');
        const limit = setTimeout(() => child.kill('SIGKILL'), PATIENCE_MS);
        if (child.connected) child.disconnect();
        await exited;
        clearTimeout(limit);
      }),
    );
  }
}
