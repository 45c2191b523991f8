import type { ChildProcess } from 'node:child_process';
import { forkScript } from '../support/scripts.js';
import { random } from './chaos-database.js';

/** Worker processes. A process that ends, for whatever reason, is replaced until the processes itself is ended. */
export class WorkerProcesses {
  readonly #file: URL;
  readonly #args: () => readonly (string | number)[];
  readonly #heard: (child: ChildProcess, message: unknown) => void;
  readonly #children = new Set<ChildProcess>();
  #ending = false;

  /** `heard` is called when a process sends a message. */
  constructor(
    file: URL,
    args: () => readonly (string | number)[],
    heard: (child: ChildProcess, message: unknown) => void = () => undefined,
  ) {
    this.#file = file;
    this.#args = args;
    this.#heard = heard;
  }

  start(workers: number): void {
    for (let n = 0; n < workers; n += 1) this.#spawn();
  }

  has(child: ChildProcess): boolean {
    return this.#children.has(child);
  }

  get all(): readonly ChildProcess[] {
    return [...this.#children];
  }

  anyone(): ChildProcess | undefined {
    return [...this.#children][random(this.#children.size)];
  }

  tell(message: string): void {
    for (const child of this.#children) child.send(message, () => undefined);
  }

  end(): void {
    this.#ending = true;
    for (const child of this.#children) child.kill('SIGKILL');
  }

  #spawn(): void {
    const child = forkScript(this.#file, this.#args().map(String), {
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    });
    this.#children.add(child);
    child.on('message', (message) => this.#heard(child, message));
    child.once('exit', () => {
      this.#children.delete(child);
      if (!this.#ending) this.#spawn();
    });
  }
}
