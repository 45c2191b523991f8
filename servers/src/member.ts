import { mkdir } from 'node:fs/promises';
import { hello } from './admin.js';
import type { Binary } from './binaries.js';
import { ServerError } from './errors.js';
import { ServerProcess } from './process.js';
import { until } from './until.js';

/** One mongod. Tests may kill it at any time and start it again on its port and its data. */
export interface Member {
  readonly host: string;
  readonly port: number;
  /** The pid of the process that runs now, or ran last. */
  readonly pid: number;
  kill(signal: NodeJS.Signals): void;
  /** Ends it if it still runs. Resolves when it takes part again: as primary, or as one of several secondaries. */
  restart(): Promise<void>;
}

export interface MemberSpec {
  readonly name: string;
  readonly binary: Binary;
  readonly port: number;
  readonly dataFolder: string;
  /** Kept apart from the data, so that a data folder contains only what its server put there. */
  readonly logFile: string;
  readonly args: readonly string[];
  /** A member without others must become primary in the end; one of several may stay secondary. */
  readonly alone: boolean;
}

export const mongoReady: RegExp = /waiting for connections/i;

export class MongodMember implements Member {
  readonly host = '127.0.0.1';
  readonly #spec: MemberSpec;
  #process: ServerProcess | undefined;

  constructor(spec: MemberSpec) {
    this.#spec = spec;
  }

  get port(): number {
    return this.#spec.port;
  }

  get pid(): number {
    return this.#process?.pid ?? -1;
  }

  get address(): string {
    return `${this.host}:${this.port}`;
  }

  async start(): Promise<void> {
    const { name, binary, dataFolder, logFile, args } = this.#spec;
    await makeDataFolder(dataFolder);
    this.#process = await ServerProcess.launch({
      name: `${name} on port ${this.port}`,
      ...binary,
      args: ['--port', `${this.port}`, '--dbpath', dataFolder, ...args],
      cwd: dataFolder,
      logFile,
      ready: mongoReady,
    });
  }

  kill(signal: NodeJS.Signals): void {
    this.#process?.kill(signal);
  }

  async end(signal: NodeJS.Signals): Promise<void> {
    await this.#process?.end(signal);
  }

  async restart(): Promise<void> {
    await this.end('SIGTERM');
    await this.start();
    await this.takesPart();
  }

  async takesPart(): Promise<void> {
    await until(`${this.#spec.name} on port ${this.port} to take part`, async () => {
      await this.#process?.assertRunning();
      const answer = await hello(this.port);
      const { alone } = this.#spec;
      return answer?.isWritablePrimary || (!alone && answer?.secondary) || undefined;
    });
  }
}

async function makeDataFolder(folder: string): Promise<void> {
  try {
    await mkdir(folder, { recursive: true });
  } catch (cause) {
    throw new ServerError(`The data folder ${folder} cannot be made.`, {
      why: String(cause),
      fix: 'name a data folder that you can write to, or none to get a temporary one',
      cause,
    });
  }
}
