import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { aliveIn, namer, type Crew, type CrewOptions, type Report, type Role } from './crew.js';
import type { Place } from './place.js';

interface Member {
  readonly child: ChildProcess;
  ready: boolean;
}

/** How long a child may take to stop before it is killed; longer than its own limit. */
const PATIENCE_MS = 8_000;

/** Workers and producers as child processes: starts them, receives their reports, and ends them. */
export class Processes implements Crew {
  readonly accident = 'killed';
  readonly #options: CrewOptions;
  readonly #entry: string;
  readonly #env: NodeJS.ProcessEnv;
  readonly #members = new Map<string, Member>();
  readonly #nextName = namer();

  /** `entry` is the script of this program. */
  constructor({ url, space }: Place, entry: string, options: CrewOptions) {
    this.#options = options;
    this.#entry = entry;
    // In the environment, since every user of the machine can read arguments.
    this.#env = { ...process.env, TIDEMILL_DEMO_URL: url, TIDEMILL_DEMO_SPACE: space };
  }

  alive(role: Role): string[] {
    return aliveIn(this.#members, role);
  }

  start(role: Role): string {
    const name = this.#nextName(role);
    const child = fork(this.#entry, ['demo-part', role, name], {
      env: this.#env,
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
      if (this.#members.delete(name))
        this.#options.died(name, code === null ? 'killed' : `code ${String(code)}`);
    });
    return name;
  }

  /** Like a crash: the worker cannot clean up. */
  strike(name: string): string {
    const member = this.#members.get(name);
    this.#members.delete(name);
    member?.child.kill('SIGKILL');
    return `${name} was killed with SIGKILL in the middle of its work`;
  }

  async stop(role: Role): Promise<void> {
    const members = [...this.#members].filter(([name]) => name.startsWith(role));
    await Promise.all(
      members.map(async ([name, { child }]) => {
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
