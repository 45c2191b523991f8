import { OptionError } from '../core/errors.js';
import type { RetentionMs } from '../store/port.js';
import { retryRule, type RetryPolicy, type RetryRule } from '../time/retry.js';
import { compile, type CompiledOptions, type CompiledWork, type JobDefinition } from './definition.js';
import type { AnyHandler } from './context.js';

/** A definition with its handler in this process. */
export interface Worker {
  readonly definition: JobDefinition;
  /** A function, or the module that has it and runs in threads. */
  readonly handler: AnyHandler | URL;
  readonly compiled: CompiledOptions;
  readonly work: CompiledWork;
}

/** Among published policies, dead letters have a key that is no job's name, so that older versions pass over it. */
const DEAD_LETTERS = '';

const DAY = 86_400_000;
export const DEFAULT_RETENTION: RetentionMs = { completed: 7 * DAY, failed: 30 * DAY, cancelled: 7 * DAY };

/** The job names that this process knows: their definitions, and the handlers of those that it runs. */
export class Registry {
  readonly #workers = new Map<string, Worker>();
  readonly #definitions = new Map<string, CompiledOptions>();
  readonly #retention: RetentionMs;
  #revision = 0;
  /** Compiled rules of policies that are stored on jobs, so that each is compiled once however often it is used. */
  readonly #rules = new WeakMap<object, RetryRule>();

  constructor(retention: RetentionMs) {
    this.#retention = retention;
  }

  get workers(): ReadonlyMap<string, Worker> {
    return this.#workers;
  }

  /** Changes with each handler that is added or replaced. */
  get revision(): number {
    return this.#revision;
  }

  add(where: string, worker: Omit<Worker, 'compiled'>): void {
    const { name } = worker.definition;
    if (this.#workers.has(name) && !worker.work.replace) {
      throw new OptionError(
        `${where}: "${name}" already has a handler; use another name, or { replace: true }.`,
      );
    }
    this.#workers.set(name, { ...worker, compiled: withKeys(worker.work, this.define(worker.definition)) });
    this.#revision += 1;
  }

  define(definition: JobDefinition): CompiledOptions {
    const compiled = compile(`job "${definition.name}"`, definition.name, definition.options);
    this.#definitions.set(definition.name, compiled);
    return compiled;
  }

  /** The names that are defined here, with a handler or without. */
  get names(): Iterable<string> {
    return this.#definitions.keys();
  }

  options(name: string): CompiledOptions | undefined {
    return this.#definitions.get(name);
  }

  retention = (name: string): RetentionMs => ({
    ...this.#retention,
    ...this.#definitions.get(name)?.retention,
  });

  /**
   * The rule stored on the job, else that of the handler here, else that of the instance that ran it (null if that has
   * the default), else that of a definition without a handler, else the default.
   */
  retryRule(name: string, own: unknown, foreign: unknown): RetryRule {
    if (typeof own === 'object' && own !== null) return this.#ruleOf(own);
    const worker = this.#workers.get(name);
    if (worker !== undefined) return worker.compiled.retry;
    if (typeof foreign === 'object' && foreign !== null) return this.#ruleOf(foreign);
    const defined = foreign === undefined ? this.#definitions.get(name)?.retry : undefined;
    return defined ?? retryRule('default');
  }

  /** Returns the rule under which another instance ran a job; undefined if it is not known to have run the name. */
  foreignRule(
    name: string,
    own: unknown,
    policies: Readonly<Record<string, unknown>>,
  ): RetryRule | undefined {
    if (typeof own === 'object' && own !== null) return this.#ruleOf(own);
    if (!Object.hasOwn(policies, name)) return undefined;
    const foreign = policies[name];
    return typeof foreign === 'object' && foreign !== null ? this.#ruleOf(foreign) : retryRule('default');
  }

  #ruleOf(policy: object): RetryRule {
    const known = this.#rules.get(policy);
    if (known !== undefined) return known;
    let rule: RetryRule;
    try {
      rule = retryRule('stored retryPolicy', policy as RetryPolicy);
    } catch {
      // Written by hand, or by a version with other policies. Retrying by the default is better than not retrying.
      rule = retryRule('default');
    }
    this.#rules.set(policy, rule);
    return rule;
  }

  /**
   * The name of the dead letters of a job: by its handler here, else by the instance that ran it, else by a definition
   * without a handler.
   */
  deadLetter(name: string, policies: Readonly<Record<string, unknown>>): string | undefined {
    const worker = this.#workers.get(name);
    if (worker !== undefined) return worker.compiled.deadLetter;
    const published = Object(policies[DEAD_LETTERS]) as Readonly<Record<string, unknown>>;
    const letter = Object.hasOwn(published, name) ? published[name] : undefined;
    return typeof letter === 'string' ? letter : this.#definitions.get(name)?.deadLetter;
  }

  /**
   * Retry policies by name, and the names of dead letters, published so that another instance can settle this one's work
   * if it dies.
   */
  policies(): Readonly<Record<string, unknown>> {
    const workers = [...this.#workers];
    const letters = workers.flatMap(
      ([
        name,
        {
          compiled: { deadLetter },
        },
      ]) => (deadLetter === undefined ? [] : [[name, deadLetter] as const]),
    );
    return Object.fromEntries<unknown>([
      ...workers.map(([name, { compiled }]) => [name, compiled.retryPolicy ?? null] as const),
      ...(letters.length === 0 ? [] : [[DEAD_LETTERS, Object.fromEntries(letters)] as const]),
    ]);
  }
}

/** Batches by key are claimed by key: without limits per key, the keys of the name only take turns. */
const withKeys = ({ batch }: CompiledWork, compiled: CompiledOptions): CompiledOptions =>
  batch?.byKey === true ? { ...compiled, limits: { perKey: {}, ...compiled.limits } } : compiled;
