import type { ChildProcess } from 'node:child_process';
import type { Role } from '../../src/mill/roles.js';
import { until } from '../support/mills.js';
import { forkScript } from '../support/scripts.js';
import { Handled } from './mills.js';

export interface InstanceOptions {
  readonly uri: string;
  readonly instanceId?: string;
  readonly leaseMs?: number;
  readonly roles?: readonly Role[];
  /** Documents per second of a reconciliation. */
  readonly rate?: number;
  /** How long the handler takes. */
  readonly handlerMs?: number;
  readonly version?: number;
  readonly partitions?: number;
}

export interface Said {
  readonly event: string;
  readonly [field: string]: unknown;
}

/** An instance in its own process, which may be killed and frozen. It runs one task, `sync` on `docs`. */
export class Instance implements AsyncDisposable {
  readonly child: ChildProcess;
  readonly handled = new Handled();
  readonly #said: Said[] = [];

  constructor(options: InstanceOptions) {
    const script = new URL('instance.ts', import.meta.url);
    this.child = forkScript(script, [JSON.stringify(options)], { stdio: 'inherit' });
    this.child.on('message', (said: Said) => {
      if (said.event === 'handled') this.handled.note(said['id'], Number(said['version']));
      this.#said.push(said);
    });
  }

  events(event: string): readonly Said[] {
    return this.#said.filter((one) => one.event === event);
  }

  /** Resolves when the instance has reported the event. */
  async heard(event: string, limitMs?: number): Promise<Said> {
    return until(`${event} was heard`, () => this.events(event)[0], limitMs);
  }

  /** A clean stop. */
  async stop(): Promise<void> {
    this.child.send('stop');
    await this.ended();
  }

  async kill(): Promise<void> {
    this.child.kill('SIGKILL');
    await this.ended();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }

  async ended(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    await new Promise((resolve) => this.child.once('exit', resolve));
  }
}

export const spawnInstance = (options: InstanceOptions): Instance => new Instance(options);
