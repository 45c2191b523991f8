/**
 * Actions on many items. They run in batches, in the process that received the request. Progress is kept in the audit
 * entry, where every process can read it and request a stop.
 */
import type { AuditEntry } from '../../index.js';
import { acted } from './acted.js';
import type { RequestContext } from '../request-context.js';
import type { Action, Operation, WorkKind } from '../contract.js';
import { isInternal, notFound, problemOf } from '../http/errors.js';
import { KIND } from '../kinds/all.js';
import type { Chosen } from '../kinds/kind.js';

interface Progress {
  readonly operation: Action;
  readonly state: Operation['state'];
  readonly done: number;
  readonly total: number | null;
  /** The whole request. */
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

/** After this long without an update, the process that ran the operation counts as gone. */
const SILENT_MS = 60_000;
/** A batch may take long: the entry is updated meanwhile, so that viewers see that the operation is alive. */
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

/** The outcome to show: a process that died could not record its end. */
export const outcomeOf = (entry: AuditEntry, now: Date): string =>
  isLost(entry, now) ? `${entry.outcome}, end unknown: its process has ended` : entry.outcome;

function toOperation(entry: AuditEntry, now: Date): Operation {
  const progress = progressOf(entry);
  if (progress === undefined) throw notFound('The operation does not exist, or was deleted.');
  const { operation: action, state, done, total, error } = progress;
  if (isLost(entry, now))
    return {
      id: entry.id,
      action,
      state: 'failed',
      done,
      total,
      error: 'The process that ran the action has ended.',
    };
  return { id: entry.id, action, state, done, total, ...(error === undefined ? {} : { error }) };
}

export class Operations {
  readonly #running = new Map<
    string,
    { readonly controller: AbortController; readonly end: Promise<void> }
  >();
  readonly #changed: () => void;

  /** `changed` is called after every update of an operation: cached results are stale then. */
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
    if (entry === undefined) throw notFound('The operation does not exist, or was deleted.');
    return toOperation(entry, now);
  }

  /** Stops the operation in whichever process runs it; it ends after the batch that is being written. */
  async stop(context: RequestContext, id: string): Promise<Operation> {
    const entry = await context.mill.audit.get(id);
    if (entry === undefined) throw notFound('The operation does not exist, or was deleted.');
    if ((await this.get(context, id)).state !== 'running') return this.get(context, id);
    const target = `${entry.action} of ${entry.target} (${id})`;
    await acted(context, { action: 'stop', target }, async () => {
      await context.mill.audit.amend(id, { stopRequested: true });
      this.#running.get(id)?.controller.abort();
      return { outcome: 'requested' };
    });
    return this.get(context, id);
  }

  /** The mill stops: operations of this process end after their batch, and record that. */
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
    // One write at a time: a slow heartbeat must not overwrite the final state.
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
      // If the store refuses this write too, the operation counts as lost after SILENT_MS.
      await tell({ state: 'failed', error: problemOf(error).message }).catch(() => undefined);
    }
  }
}
