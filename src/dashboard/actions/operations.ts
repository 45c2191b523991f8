/**
 * Actions on many. They run in the process that was asked, in batches; how far each has come is kept in its audit entry,
 * where every process finds it, and where a stop is asked for.
 */
import type { AuditEntry } from '../../index.js';
import { acted } from './acted.js';
import type { RequestContext } from '../request-context.js';
import type { Action, Operation, WorkKind } from '../contract.js';
import { isInternal, notFound, problemOf } from '../http/errors.js';
import type { Chosen } from '../kinds/kind.js';
import { KIND } from '../http/session.js';

interface Progress {
  readonly operation: Action;
  readonly state: Operation['state'];
  readonly done: number;
  readonly total: number | null;
  /** Which work was asked for, in full. */
  readonly target: OperationRequest['exactly'];
  readonly error?: string;
}

export interface OperationRequest {
  readonly action: Action;
  readonly kind: WorkKind;
  readonly chosen: Chosen;
  readonly words: string;
  readonly exactly: { readonly ids: readonly string[] } | { readonly query: string };
  readonly asOf: Date;
  readonly total: number | null;
}

/** One that has not been heard of for so long has lost its process. */
const SILENT_MS = 60_000;
/** A batch may take long; whoever waits for its end should still see that somebody is at it. */
const BEAT_MS = 10_000;

const progressOf = ({ details }: AuditEntry): Progress | undefined => {
  const known = details as Partial<Progress> | null | undefined;
  return typeof known?.operation === 'string' ? (known as Progress) : undefined;
};

const saidOf = ({ state, done, total }: Progress): string =>
  `${state === 'running' ? 'running: ' : state === 'done' ? '' : `${state}: `}${String(done)}${total === null ? '' : ` of ${String(total)}`}`;

const beginningOf = ({ action, total, exactly }: OperationRequest): Progress => ({
  operation: action,
  state: 'running',
  done: 0,
  total,
  target: exactly,
});

const isLost = (entry: AuditEntry, now: Date): boolean =>
  progressOf(entry)?.state === 'running' && now.getTime() - entry.updatedAt.getTime() > SILENT_MS;

/** What an entry says now: a process that died could not write that it did. */
export const outcomeOf = (entry: AuditEntry, now: Date): string =>
  isLost(entry, now) ? `${entry.outcome}, end unknown: its process is gone` : entry.outcome;

function toOperation(entry: AuditEntry, now: Date): Operation {
  const progress = progressOf(entry);
  if (progress === undefined) throw notFound('There is no such operation (any more).');
  const { operation: action, state, done, total, error } = progress;
  if (isLost(entry, now))
    return { id: entry.id, action, state: 'failed', done, total, error: 'The process that ran it is gone.' };
  return { id: entry.id, action, state, done, total, ...(error === undefined ? {} : { error }) };
}

export class Operations {
  readonly #running = new Map<
    string,
    { readonly controller: AbortController; readonly end: Promise<void> }
  >();
  readonly #changed: () => void;

  /** `changed`: what others may have read is not true any more. */
  constructor(changed: () => void) {
    this.#changed = changed;
  }

  async begin(context: RequestContext, request: OperationRequest): Promise<Operation> {
    const { action, words } = request;
    const begun = beginningOf(request);
    const entry = await context.mill.audit.append({
      actor: context.viewer.actor,
      action,
      target: words,
      outcome: saidOf(begun),
      details: begun,
    });
    const controller = new AbortController();
    const end = this.#run(context, request, entry.id, controller);
    this.#running.set(entry.id, { controller, end });
    void end.then(() => this.#running.delete(entry.id));
    return toOperation(entry, entry.updatedAt);
  }

  async get({ mill }: RequestContext, id: string): Promise<Operation> {
    const [entry, now] = await Promise.all([mill.audit.get(id), mill.time()]);
    if (entry === undefined) throw notFound('There is no such operation (any more).');
    return toOperation(entry, now);
  }

  /** Reaches it in whichever process it runs; there it ends after the batch that is being written. */
  async stop(context: RequestContext, id: string): Promise<Operation> {
    const entry = await context.mill.audit.get(id);
    if (entry === undefined) throw notFound('There is no such operation (any more).');
    if ((await this.get(context, id)).state !== 'running') return this.get(context, id);
    const target = `${entry.action} of ${entry.target} (${id})`;
    await acted(context, { action: 'stop', target }, async () => {
      await context.mill.audit.amend(id, { stopRequested: true });
      this.#running.get(id)?.controller.abort();
      return { outcome: 'requested' };
    });
    return this.get(context, id);
  }

  /** The mill stops: what runs here ends after its batch, and says so in the store. */
  async close(): Promise<void> {
    const running = [...this.#running.values()];
    for (const { controller } of running) controller.abort();
    await Promise.all(running.map(({ end }) => end));
  }

  async #run(
    context: RequestContext,
    request: OperationRequest,
    id: string,
    controller: AbortController,
  ): Promise<void> {
    const { kind } = request;
    let progress = beginningOf(request);
    const write = async (): Promise<void> => {
      const entry = await context.mill.audit.amend(id, { outcome: saidOf(progress), details: progress });
      if (entry?.stopRequested === true) controller.abort();
      this.#changed();
    };
    // One after the other: a beat that is slow to arrive must not overwrite the end.
    let turn: Promise<void> = Promise.resolve();
    const tell = (change: Partial<Progress>): Promise<void> => {
      progress = { ...progress, ...change };
      const told = turn.then(write);
      turn = told.catch(() => undefined);
      return told;
    };
    const beat = setInterval(() => void tell({}).catch(() => undefined), BEAT_MS).unref();
    try {
      const { signal } = controller;
      const done = await KIND[kind].many(context, {
        ...request,
        signal,
        progress: (count) => tell({ done: count }),
      });
      clearInterval(beat);
      await tell({ done, state: signal.aborted ? 'stopped' : 'done' });
    } catch (error) {
      clearInterval(beat);
      if (isInternal(error)) context.settings.onError(error);
      // Where the store does not take this either, the silence tells.
      await tell({ state: 'failed', error: problemOf(error).message }).catch(() => undefined);
    }
  }
}
