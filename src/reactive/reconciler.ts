import { pause, type Clock } from '../core/clock.js';
import type { Emitter } from '../core/emitter.js';
import type { Logger } from '../core/logger.js';
import type { Meter } from '../core/meter.js';
import type {
  Checkpoint,
  IdPage,
  PlannerStore,
  PlanStore,
  Source,
  TaskPlan,
  Term,
} from '../store/reactive.js';
import type { TaskEvents } from './events.js';

export interface ReconcilerOptions {
  readonly planning: PlanStore;
  readonly planner: PlannerStore;
  readonly clock: Clock;
  readonly term: Term;
  readonly instanceId: string;
  /** Documents per second at most. */
  readonly rate: number;
  readonly events: Emitter<TaskEvents>;
  readonly log: Logger;
  readonly meter: Meter;
  /** Plans a page of one source; takes turns with the live changes of that source. */
  readonly plan: (plans: readonly TaskPlan[], ids: readonly unknown[]) => Promise<void>;
  /** Marks tasks whose document is gone or does not match. */
  readonly unmatch: (plan: TaskPlan, ids: readonly unknown[]) => Promise<void>;
  readonly stop: AbortSignal;
}

const PAGE = 1_000;
const SAVE_EVERY_MS = 1_000;
const TELL_EVERY_MS = 5_000;

/** What one reconciliation is for; another set of tasks or definitions begins anew. */
export interface Reconciliation {
  readonly source: Source;
  readonly plans: readonly TaskPlan[];
  /** Identifies tasks, definitions and requests. */
  readonly mark: readonly string[];
}

/**
 * Looks at every document of a source, and at every task of it, ids only, a page at a time. How far it has come is in
 * the database: after a crash it goes on from there. False where it was interrupted.
 */
export class Reconciler {
  readonly #options: ReconcilerOptions;
  #pass: Pass | undefined;

  constructor(options: ReconcilerOptions) {
    this.#options = options;
  }

  /** How many documents have been looked at so far. */
  get processed(): number {
    return this.#pass?.processed ?? 0;
  }

  async run(what: Reconciliation): Promise<boolean> {
    const { planner, events, instanceId, log, meter } = this.#options;
    const { source, plans, mark } = what;
    const tasks = plans.map(({ task }) => task);
    const about = { tasks, collection: source.collection, instanceId };
    const kept = await planner.checkpoint(source);
    const valid = kept !== undefined && kept.tasks.join() === mark.join();
    const from: Checkpoint = valid ? kept : { tasks: mark, phase: 'documents', processed: 0 };
    log.info(
      about,
      `reconciling ${tasks.join(', ')} with ${source.collection}${valid ? ', from a checkpoint' : ''}`,
    );
    events.emit('reconcile:start', about);
    const pass = (this.#pass = new Pass(this.#options, what, from));
    if (!(await pass.run())) return false;
    await planner.saveCheckpoint(this.#options.term, source, undefined);
    log.info({ ...about, processed: pass.processed }, `reconciled ${tasks.join(', ')}`);
    meter.reconciled();
    events.emit('reconcile:complete', { ...about, processed: pass.processed });
    return true;
  }
}

/** One pass over a source. */
class Pass {
  readonly #options: ReconcilerOptions;
  readonly #what: Reconciliation;
  readonly #from: Checkpoint;
  #processed: number;
  #savedAt: number;
  #toldAt: number;

  constructor(options: ReconcilerOptions, what: Reconciliation, from: Checkpoint) {
    this.#options = options;
    this.#what = what;
    this.#from = from;
    this.#processed = from.processed;
    this.#savedAt = this.#toldAt = options.clock.monotonic();
  }

  get processed(): number {
    return this.#processed;
  }

  async run(): Promise<boolean> {
    const { planning, plan, unmatch } = this.#options;
    const { source, plans } = this.#what;
    const { phase, after } = this.#from;
    if (phase === 'documents') {
      const pages = (next: string | undefined): Promise<IdPage> => planning.documents(source, next, PAGE);
      const done = await this.#pages('documents', after, pages, (ids) => plan(plans, ids));
      if (!done) return false;
    }
    // Documents that went while nobody looked have left their tasks behind.
    const [begunWith, begunAfter] = phase === 'tasks' ? fromMark(after) : [plans[0]?.task, undefined];
    const open = plans.slice(
      Math.max(
        0,
        plans.findIndex(({ task }) => task === begunWith),
      ),
    );
    for (const one of open) {
      const start = one.task === begunWith ? begunAfter : undefined;
      const pages = (next: string | undefined): Promise<IdPage> => planning.known(one, next, PAGE);
      const done = await this.#pages('tasks', start, pages, (ids) => unmatch(one, ids), one.task);
      if (!done) return false;
    }
    return true;
  }

  async #pages(
    phase: Checkpoint['phase'],
    from: string | undefined,
    read: (after: string | undefined) => Promise<IdPage>,
    work: (ids: readonly unknown[]) => Promise<void>,
    task?: string,
  ): Promise<boolean> {
    const { clock, stop, rate } = this.#options;
    let next: Promise<IdPage> | undefined = read(from);
    while (next !== undefined) {
      const began = clock.monotonic();
      const page: IdPage = await next;
      if (stop.aborted) return false;
      // The next page is read while this one is planned.
      next = page.after === undefined ? undefined : read(page.after);
      next?.catch(() => undefined);
      if (page.ids.length > 0) await work(page.ids);
      this.#processed += phase === 'documents' ? page.ids.length : 0;
      await this.#reached(phase, task === undefined ? page.after : toMark(task, page.after));
      const restMs = (page.ids.length / rate) * 1_000 - (clock.monotonic() - began);
      if (restMs > 1) await pause(clock, restMs, stop);
    }
    return !stop.aborted;
  }

  async #reached(phase: Checkpoint['phase'], after: string | undefined): Promise<void> {
    const { planner, term, clock, events, instanceId, log } = this.#options;
    const { source, plans, mark } = this.#what;
    const now = clock.monotonic();
    const processed = this.#processed;
    if (now - this.#savedAt >= SAVE_EVERY_MS && after !== undefined) {
      this.#savedAt = now;
      await planner.saveCheckpoint(term, source, { tasks: mark, phase, after, processed });
    }
    if (now - this.#toldAt < TELL_EVERY_MS) return;
    this.#toldAt = now;
    const tasks = plans.map(({ task }) => task);
    const about = { tasks, collection: source.collection, processed, instanceId };
    log.info(about, `reconciling ${tasks.join(', ')}: ${String(processed)} documents so far`);
    events.emit('reconcile:progress', about);
  }
}

const toMark = (task: string, after: string | undefined): string => JSON.stringify([task, after ?? null]);

function fromMark(mark: string | undefined): readonly [string | undefined, string | undefined] {
  if (mark === undefined) return [undefined, undefined];
  const [task, after] = JSON.parse(mark) as [string, string | null];
  return [task, after ?? undefined];
}
