import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { Place } from '../contenders/contender.js';

/** What a child process is to do. */
export interface Assignment extends Place {
  readonly contender: string;
  readonly task: string;
  readonly [setting: string]: unknown;
}

type Message = { readonly kind: string; readonly [field: string]: unknown };

const ENTRY = fileURLToPath(new URL('task.ts', import.meta.url));

/** A fresh process with one assignment. It sends messages of a `kind`; the last one is `result` or `failed`. */
export class Child {
  readonly #process: ChildProcess;
  readonly #seen: Message[] = [];
  readonly #waiting = new Map<string, (message: Message) => void>();
  readonly #failure: Promise<never>;

  constructor(assignment: Assignment, execArgv: readonly string[] = []) {
    this.#process = fork(ENTRY, [JSON.stringify({ ...assignment, uri: within(assignment) })], {
      execArgv: ['--import', 'tsx', ...profiling(), ...execArgv],
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    });
    const who = `${assignment.contender} (${assignment.variant}), ${assignment.task}`;
    this.#failure = new Promise((_, reject) => {
      this.#process.on('message', (message: Message) => {
        if (message.kind === 'failed') reject(new Error(`${who}: ${String(message['error'])}`));
        else this.#heard(message);
      });
      this.#process.once('exit', (code) => {
        if (code !== 0) reject(new Error(`${who}: ended with code ${String(code)}`));
      });
    });
    this.#failure.catch(() => undefined);
  }

  #heard(message: Message): void {
    const waiter = this.#waiting.get(message.kind);
    this.#waiting.delete(message.kind);
    if (waiter === undefined) this.#seen.push(message);
    else waiter(message);
  }

  on(kind: string, listener: (message: Message) => void): void {
    this.#process.on('message', (message: Message) => {
      if (message.kind === kind) listener(message);
    });
  }

  say(kind: string): void {
    this.#process.send({ kind });
  }

  /** Resolves with the next message of that kind; rejects if the child fails. */
  hear<T = Message>(kind: string): Promise<T> {
    const at = this.#seen.findIndex((message) => message.kind === kind);
    if (at >= 0) return Promise.resolve(this.#seen.splice(at, 1)[0] as T);
    const message = new Promise<Message>((resolve) => this.#waiting.set(kind, resolve));
    return Promise.race([message as Promise<T>, this.#failure]);
  }

  async end(): Promise<void> {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return;
    const gone = once(this.#process, 'exit');
    const timer = setTimeout(() => this.#process.kill('SIGKILL'), 10_000);
    await gone;
    clearTimeout(timer);
  }

  kill(): void {
    this.#process.kill('SIGKILL');
  }
}

/** The server's URI with the database in it, since some libraries take the database only from there. */
function within({ uri, database }: Assignment): string {
  if (uri.startsWith('file:')) return uri;
  const url = new URL(uri);
  url.pathname = `/${database}`;
  return url.href;
}

/** `BENCH_PROFILE=folder` writes a CPU profile of every child there. */
function profiling(): string[] {
  const folder = process.env['BENCH_PROFILE'];
  return folder === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${folder}`];
}

/** Runs one assignment to its end in a process of its own. */
export async function inChild<T>(assignment: Assignment): Promise<T> {
  const child = new Child(assignment);
  try {
    const { value } = await child.hear<{ value: T }>('result');
    await child.end();
    return value;
  } catch (error) {
    child.kill();
    throw error;
  }
}
