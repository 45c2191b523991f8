import type { Clock } from '../../../core/clock.js';
import type { Emitter } from '../../../core/emitter.js';
import type { Logger } from '../../../core/logger.js';
import type { Meter } from '../../../core/meter.js';
import type {
  Checkpoint,
  IdPage,
  PlannerStore,
  PlanStore,
  Source,
  TaskPlan,
  Term,
} from '../../../store/reactive/reactive.js';
import type { TaskEvents } from '../../events.js';
import type { BlockedDocuments } from '../blocked-documents.js';
import { PageSize } from './turns.js';

export interface ReconcilerOptions {
  readonly planning: PlanStore;
  readonly planner: PlannerStore;
  readonly clock: Clock;
  readonly term: Term;
  readonly instanceId: string;
  /** Maximum number of documents per second. */
  readonly rate: number;
  readonly events: Emitter<TaskEvents>;
  readonly log: Logger;
  readonly meter: Meter;
  /** Plans a page of one source, in turn with the live changes of the same tasks. */
  readonly plan: (plans: readonly TaskPlan[], ids: readonly unknown[]) => Promise<void>;
  /** Marks tasks whose document is gone or no longer matches. */
  readonly unmatch: (plan: TaskPlan, ids: readonly unknown[]) => Promise<void>;
  /** Recorded before a checkpoint, which must not pass a document that no successor would plan. */
  readonly blocked: Pick<BlockedDocuments, 'keep'>;
  readonly stop: AbortSignal;
}

const SAVE_EVERY_MS = 1_000;
const TELL_EVERY_MS = 5_000;

/** What a reconciliation is for; another set of tasks, triggers or requests starts a new one. */
export interface Reconciliation {
  readonly source: Source;
  readonly plans: readonly TaskPlan[];
  /** Identifies the tasks, triggers and requests. */
  readonly mark: readonly string[];
}

/**
 * Processes every document of a source, and then every task of it, ids only, one page at a time. Its progress is stored
 * in the database: after a crash it continues from there.
 */
export class Reconciler {
  readonly #options: ReconcilerOptions;
  readonly #what: Reconciliation;
  readonly #pageSize: PageSize;
  #processed = 0;
  #savedAt: number;
  #toldAt: number;

  constructor(options: ReconcilerOptions, what: Reconciliation) {
    this.#options = options;
    this.#what = what;
    this.#pageSize = new PageSize(options.rate);
    this.#savedAt = this.#toldAt = options.clock.monotonic();
  }

  /** How many documents have been processed so far. */
  get processed(): number {
    return this.#processed;
  }

  get #about(): {
    readonly tasks: readonly string[];
    readonly collection: string;
    readonly instanceId: string;
  } {
    const { source, plans } = this.#what;
    const tasks = plans.map(({ task }) => task);
    return { tasks, collection: source.collection, instanceId: this.#options.instanceId };
  }

  /** Each step processes one page and yields how many ids it had. */
  async *pages(): AsyncGenerator<number, void> {
    const { planner, events, log } = this.#options;
    const { source, mark } = this.#what;
    const kept = await planner.checkpoint(source);
    const valid = kept !== undefined && kept.tasks.join() === mark.join();
    const from: Checkpoint = valid ? kept : { tasks: mark, phase: 'documents', processed: 0 };
    const about = this.#about;
    const names = about.tasks.join(', ');
    log.info(about, `reconciling ${names} with ${source.collection}${valid ? ', from a checkpoint' : ''}`);
    events.emit('reconcile:start', about);
    this.#processed = from.processed;
    yield* this.#pass(from);
  }

  /** Called when the end of the pass is on record. */
  async complete(): Promise<void> {
    const { planner, events, log, meter, term } = this.#options;
    const about = { ...this.#about, processed: this.#processed };
    await planner.saveCheckpoint(term, this.#what.source, undefined);
    log.info(about, `reconciled ${about.tasks.join(', ')}`);
    meter.reconciled();
    events.emit('reconcile:complete', about);
  }

  async *#pass({ phase, after }: Checkpoint): AsyncGenerator<number, void> {
    const { planning, plan, unmatch } = this.#options;
    const { source, plans } = this.#what;
    if (phase === 'documents') {
      const read = (next: string | undefined, limit: number): Promise<IdPage> =>
        planning.documents(source, next, limit);
      yield* this.#pages('documents', after, read, (ids) => plan(plans, ids));
    }
    // Documents that were deleted while no feed was open have left their tasks behind.
    const [begunWith, begunAfter] = phase === 'tasks' ? fromMark(after) : [plans[0]?.task, undefined];
    const begunAt = plans.findIndex(({ task }) => task === begunWith);
    for (const one of plans.slice(Math.max(0, begunAt))) {
      const start = one.task === begunWith ? begunAfter : undefined;
      const read = (next: string | undefined, limit: number): Promise<IdPage> =>
        planning.known(one, next, limit);
      yield* this.#pages('tasks', start, read, (ids) => unmatch(one, ids), one.task);
    }
  }

  async *#pages(
    phase: Checkpoint['phase'],
    from: string | undefined,
    read: (after: string | undefined, limit: number) => Promise<IdPage>,
    work: (ids: readonly unknown[]) => Promise<void>,
    task?: string,
  ): AsyncGenerator<number, void> {
    const { clock } = this.#options;
    let next: Promise<IdPage> | undefined = read(from, this.#pageSize.size);
    while (next !== undefined) {
      const page: IdPage = await next;
      // The next page is read while this one is planned.
      next = page.after === undefined ? undefined : read(page.after, this.#pageSize.size);
      next?.catch(() => undefined);
      const began = clock.monotonic();
      if (page.ids.length > 0) await work(page.ids);
      this.#pageSize.took(clock.monotonic() - began);
      this.#processed += phase === 'documents' ? page.ids.length : 0;
      await this.#reached(phase, task === undefined ? page.after : toMark(task, page.after));
      yield page.ids.length;
    }
  }

  async #reached(phase: Checkpoint['phase'], after: string | undefined): Promise<void> {
    const { planner, term, clock, events, log, blocked } = this.#options;
    const { source, mark } = this.#what;
    const now = clock.monotonic();
    const processed = this.#processed;
    if (now - this.#savedAt >= SAVE_EVERY_MS && after !== undefined) {
      this.#savedAt = now;
      await blocked.keep();
      await planner.saveCheckpoint(term, source, { tasks: mark, phase, after, processed });
    }
    if (now - this.#toldAt < TELL_EVERY_MS) return;
    this.#toldAt = now;
    const about = { ...this.#about, processed };
    log.info(about, `reconciling ${about.tasks.join(', ')}: ${String(processed)} documents so far`);
    events.emit('reconcile:progress', about);
  }
}

const toMark = (task: string, after: string | undefined): string => JSON.stringify([task, after ?? null]);

function fromMark(mark: string | undefined): readonly [string | undefined, string | undefined] {
  if (mark === undefined) return [undefined, undefined];
  const [task, after] = JSON.parse(mark) as [string, string | null];
  return [task, after ?? undefined];
}
