import { AsyncLocalStorage } from 'node:async_hooks';
import type { Document } from 'mongodb';
import { Scheduler, type SchedulerOptions } from '../../documents/index.js';
import type { Cron, CronCollection, MongoCronCfg } from './config.js';
import { CronDocuments } from './cron-documents.js';

type HookName = 'onStart' | 'onDocument' | 'onIdle' | 'onStop' | 'onError';

/** A hook of the user that is being called. */
interface HookCall {
  readonly of: MongoCron;
  readonly name: HookName;
  isOver: boolean;
  /** The call of another queue's hook that this one is inside of. */
  readonly outer: HookCall | undefined;
}

/** One for all queues: each storage takes time from all promises, for good. */
const hookCalls = new AsyncLocalStorage<HookCall>();

/**
 * Turns a collection into a queue, as mongodb-cron does. Duties: pass the options on to a `Scheduler`, call the hooks with
 * the old arguments, and let them call `start` and `stop`, which wait for hooks otherwise.
 */
export class MongoCron implements Cron {
  protected readonly config: MongoCronCfg;
  readonly #scheduler: Scheduler<Document>;
  readonly #documents: CronDocuments;
  #isIdle = false;
  /** `onStop` has not been called since the last start. */
  #isOpen = false;

  constructor(config: MongoCronCfg) {
    this.config = config;
    this.#documents = new CronDocuments(config);
    this.#scheduler = new Scheduler({
      ...passedOn(config),
      store: () => this.#documents.of(this.getCollection()),
      onStart: () => this.#started(),
      onDocument: (document, { job }) => this.#documents.running(job, () => this.#run(document)),
      onIdle: () => this.#idle(),
      onStop: () => this.#stopped(),
      onError: (error) => this.#fail(error),
    });
  }

  protected getCollection(): CronCollection {
    const { collection } = this.config;
    return typeof collection === 'function' ? collection() : collection;
  }

  /** True from `start` until `stop` is called. */
  isRunning(): boolean {
    return this.#scheduler.isRunning();
  }

  /** True while a document runs or its end is being recorded. */
  isProcessing(): boolean {
    return this.#scheduler.isProcessing();
  }

  /** True after a poll found nothing, until the next document. */
  isIdle(): boolean {
    return this.#isIdle;
  }

  /** Resolves when `onStart` has. Does nothing if it is running. */
  async start(): Promise<void> {
    await this.#unlessInHook(this.#scheduler.start());
  }

  /** Resolves when the current document has ended and `onStop` has; inside a hook, without waiting for the hook. */
  async stop(): Promise<void> {
    const isIdle = this.#currentHook?.name === 'onIdle';
    await this.#unlessInHook(this.#scheduler.stop());
    // Nothing runs, so the process may end after this.
    if (isIdle) await this.#stopped();
  }

  /** Plans the next run of a document as if it had just run, unless its schedule in the collection is another by now. */
  async reschedule(doc: Document): Promise<void> {
    await this.#scheduler.reschedule(doc);
  }

  get #currentHook(): HookCall | undefined {
    let call = hookCalls.getStore();
    while (call !== undefined && (call.of !== this || call.isOver)) call = call.outer;
    return call;
  }

  /** The scheduler waits for hooks, so a hook that waited for the scheduler would never end. */
  async #unlessInHook(work: Promise<void>): Promise<void> {
    if (this.#currentHook === undefined) await work;
    else void work.catch((error: unknown) => this.#failUnawaited(error as Error));
  }

  async #call(name: HookName, call: () => unknown): Promise<void> {
    const hook = { of: this, name, isOver: false, outer: hookCalls.getStore() };
    try {
      await hookCalls.run(hook, call);
    } finally {
      hook.isOver = true;
    }
  }

  async #started(): Promise<void> {
    await this.#call('onStart', () => this.config.onStart?.call(this, this));
    this.#isOpen = true;
  }

  async #run(document: Document): Promise<void> {
    this.#isIdle = false;
    await this.#call('onDocument', () => this.config.onDocument?.call(this, document, this));
  }

  async #idle(): Promise<void> {
    if (this.#isIdle) return;
    this.#isIdle = true;
    await this.#call('onIdle', () => this.config.onIdle?.call(this, this));
  }

  async #stopped(): Promise<void> {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    await this.#call('onStop', () => this.config.onStop?.call(this, this));
  }

  async #fail(error: Error): Promise<void> {
    const { config } = this;
    if (config.onError === undefined) console.error(error);
    else await this.#call('onError', () => config.onError?.call(this, error, this));
  }

  /** The scheduler logs what `onError` throws; here nothing stands above, so an error would end the process. */
  async #failUnawaited(error: Error): Promise<void> {
    const { logger } = this.config;
    try {
      await this.#fail(error);
    } catch (thrown) {
      if (logger === undefined) console.error(thrown);
      else if (logger !== false) {
        const message = thrown instanceof Error ? thrown.message : String(thrown);
        logger.error({ error: thrown, where: 'onError' }, `onError: ${message}`);
      }
    }
  }
}

const PASSED_ON = [
  'nextDelay',
  'reprocessDelay',
  'idleDelay',
  'lockDuration',
  'concurrency',
  'missed',
  'pollInterval',
  'retryPolicy',
  'logger',
] as const;

/** The options that the scheduler has, too. Any that mongodb-cron does not know either are ignored, as there. */
function passedOn(config: MongoCronCfg): Pick<SchedulerOptions, (typeof PASSED_ON)[number] | 'timezone'> {
  const given = PASSED_ON.map((name) => [name, config[name]] as const);
  // mongodb-cron reads intervals in the zone of the process.
  const { timezone = Intl.DateTimeFormat().resolvedOptions().timeZone } = config;
  return { ...Object.fromEntries(given.filter(([, value]) => value !== undefined)), timezone };
}
