import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { MessageChannel, receiveMessageOnPort, type MessagePort } from 'node:worker_threads';
import type { Piscina } from 'piscina';
import { asError, AttemptTimeoutError, OptionError, reasonOf, TidemillError } from '../../core/errors.js';
import type { Logger } from '../../core/logger.js';
import type { JobContext, JobHandler } from '../context.js';
import type { Worker } from '../registry.js';
import {
  checkCrossing,
  receivedError,
  sentError,
  type FromThread,
  type ThreadJob,
  type ThreadRequest,
} from './thread-messages.js';

/** What runs in a thread: above the folder of the built chunks or, when the sources run, their own file. */
const ENTRIES = ['../thread.mjs', './thread-entry.ts'];
/** How long a handler has to react to its timeout before its thread is ended. */
const GRACE_MS = 500;
/** A thread that ends late must not delay the next job, so there may be more threads than jobs for a moment. */
const THREADS_PER_JOB = 2;
const IDLE_MS = 30_000;

function entry(): { readonly filename: string; readonly execArgv?: string[] } {
  const found = ENTRIES.map((file) => new URL(file, import.meta.url)).find((url) => existsSync(url));
  if (found === undefined)
    throw new TidemillError('THREADS', 'The package is incomplete: dist/thread.mjs is missing.');
  const filename = fileURLToPath(found);
  return filename.endsWith('.ts') ? { filename, execArgv: ['--import', 'tsx'] } : { filename };
}

async function loadPiscina(where: string): Promise<typeof Piscina> {
  try {
    return (await import('piscina')).Piscina;
  } catch (cause) {
    const message = `${where}: \`thread\` needs the package piscina, which cannot be loaded. Run: npm install piscina`;
    throw new TidemillError('THREADS', message, { cause });
  }
}

/** The threads of all handlers of this instance that have a `thread`: one pool for each. */
export class Threads {
  readonly #pools = new Map<Worker, Promise<ThreadPool>>();
  readonly #log: Logger;

  constructor(log: Logger) {
    this.#log = log;
  }

  /** Loads the modules of these handlers. Rejects if one cannot be used. */
  async prepare(workers: Iterable<Worker>): Promise<void> {
    try {
      for (const worker of workers)
        if (worker.handler instanceof URL) await this.#pool(worker, worker.handler);
    } catch (problem) {
      await this.stop();
      throw problem;
    }
  }

  /** A handler that has its job run in a thread. */
  handlerOf(worker: Worker, module: URL): JobHandler {
    return async (job) => (await this.#pool(worker, module)).run(job);
  }

  /** Ends all threads. */
  async stop(): Promise<void> {
    const pools = await Promise.allSettled([...this.#pools.values()]);
    this.#pools.clear();
    await Promise.all(pools.flatMap((pool) => (pool.status === 'fulfilled' ? [pool.value.stop()] : [])));
  }

  #pool(worker: Worker, module: URL): Promise<ThreadPool> {
    const known = this.#pools.get(worker);
    if (known !== undefined) return known;
    const opening = ThreadPool.open(worker, module, this.#log);
    this.#pools.set(worker, opening);
    // The next job tries again.
    opening.catch(() => this.#pools.delete(worker));
    return opening;
  }
}

/** The threads of one handler. Each runs one job at a time, so that ending it harms no other job. */
class ThreadPool {
  readonly #pool: Piscina;
  readonly #module: string;
  readonly #where: string;
  readonly #diedIdle: (error: unknown) => void;

  constructor(
    pool: Piscina,
    module: string,
    { where, diedIdle }: { readonly where: string; readonly diedIdle: (error: unknown) => void },
  ) {
    this.#pool = pool;
    this.#module = module;
    this.#where = where;
    this.#diedIdle = diedIdle;
  }

  static async open({ definition, work }: Worker, { href }: URL, log: Logger): Promise<ThreadPool> {
    const where = `job "${definition.name}"`;
    const Pool = await loadPiscina(where);
    const piscina = new Pool({
      ...entry(),
      minThreads: 0,
      maxThreads: work.concurrency * THREADS_PER_JOB,
      idleTimeout: IDLE_MS,
      // Waiting by atomics would block the timers of a handler's module between jobs.
      atomics: 'disabled',
    });
    // Without a listener, a thread that dies between two jobs would end the process.
    const diedIdle = (err: unknown): void => {
      log.error({ name: definition.name, err }, `${where}: a thread died while it ran no job; others go on`);
    };
    piscina.on('error', diedIdle);
    const request: ThreadRequest = { module: href, check: true };
    const problem = (await piscina.run(request)) as string | undefined;
    if (problem === undefined) return new ThreadPool(piscina, href, { where, diedIdle });
    await piscina.destroy();
    throw new OptionError(`${where}: the module of \`thread\`, ${href}, cannot be used: ${problem}`);
  }

  stop(): Promise<void> {
    return this.#pool.destroy();
  }

  async run(job: JobContext): Promise<unknown> {
    checkCrossing(job.data, 'data');
    const { port1: own, port2: port } = new MessageChannel();
    const kill = new AbortController();
    let ending: NodeJS.Timeout | undefined;
    const { signal } = job;
    const onAbort = (): void => {
      own.postMessage({ abort: sentError(signal.reason) });
      if (signal.reason instanceof AttemptTimeoutError) ending = setTimeout(() => kill.abort(), GRACE_MS);
    };
    signal.addEventListener('abort', onAbort, { once: true });
    const request: ThreadRequest = { module: this.#module, job: told(job), port };
    try {
      const { ended, hearRest } = heard(own, job);
      const ran = this.#pool.run(request, { transferList: [port], signal: kill.signal });
      // The thread may die. If it does not, its last message has what became of the job.
      const died = ran.catch((cause: unknown): never => {
        if (hearRest()) this.#diedIdle(cause);
        throw new TidemillError('THREADS', `${this.#where}: its thread died: ${reasonOf(cause)}`, { cause });
      });
      await Promise.race([ended, died.then(() => ended)]);
      return await ended;
    } finally {
      clearTimeout(ending);
      signal.removeEventListener('abort', onAbort);
      own.close();
    }
  }
}

function told({
  id,
  name,
  data,
  attempt,
  failCount,
  uniqueKey,
  scheduledFor,
  limitKey,
}: JobContext): ThreadJob {
  return {
    id,
    name,
    data,
    attempt,
    failCount,
    limitKey,
    ...(uniqueKey === undefined ? {} : { uniqueKey }),
    ...(scheduledFor === undefined ? {} : { scheduledFor }),
  };
}

interface Heard {
  /** Settles when the handler has ended. */
  readonly ended: Promise<unknown>;
  /**
   * Hears now what a thread said before it died, since its death may be told earlier than its last words. Returns whether
   * the handler had ended.
   */
  readonly hearRest: () => boolean;
}

/** Passes on what a handler says in its thread. */
function heard(port: MessagePort, job: JobContext): Heard {
  // A call that is refused here cannot throw in the thread, so it fails the job at its end.
  let refused: { readonly error: Error } | undefined;
  const pass = (call: () => void): void => {
    try {
      call();
    } catch (error) {
      refused ??= { error: asError(error) };
    }
  };
  let over = false;
  let hear: (message: FromThread) => void;
  const ended = new Promise<unknown>((resolve, reject) => {
    hear = (message) => {
      over ||= message.kind === 'threw' || message.kind === 'returned';
      if (message.kind === 'progress') pass(() => job.progress(message.value));
      else if (message.kind === 'log') pass(() => job.log(message.message as string, message.fields));
      else if (message.kind === 'defer') pass(() => job.defer(message.until as Date));
      else if (message.kind === 'threw') reject(receivedError(message.error));
      else if (refused !== undefined) reject(refused.error);
      else resolve(message.result);
    };
  });
  port.on('message', (message: FromThread) => hear(message));
  const hearRest = (): boolean => {
    let next = receiveMessageOnPort(port);
    while (next !== undefined) {
      hear(next.message as FromThread);
      next = receiveMessageOnPort(port);
    }
    return over;
  };
  return { ended, hearRest };
}
