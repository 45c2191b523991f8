import type { Clock } from '../core/clock.js';
import { asError, StoreError, TidemillError } from '../core/errors.js';
import { tryInHalves, type Blame } from '../core/batches/bisect.js';
import type { Finished } from '../core/records/outcome.js';
import { inPieces, type Tried } from '../core/batches/pieces.js';
import type { FailureKind, Work } from '../core/records/work.js';
import { concludeStored } from '../store/helpers/conclude-stored.js';
import {
  leaseOf,
  lifeOf,
  type FailedRun,
  type Instance,
  type StrayQuery,
  type WorkStore,
} from '../store/port.js';

export type Policies = Readonly<Record<string, unknown>>;

/** The runner of one kind of work, as its handover sees it. */
interface HandoverRunner<W extends Work, S> {
  /** Decides what to record for a crashed attempt. `policies` are those of the instance that ran it. */
  conclude(
    work: W,
    finished: Finished,
    about: { readonly policies: Policies; readonly isStored?: boolean },
  ): Concluded<S>;
  /** True if, by the policies of the instance that ran it, this was the last attempt, whose start is marked. */
  isLastAttempt(work: W, policies: Policies): boolean;
}

/** The engine of one kind of work, as its handover sees it. */
interface HandoverEngine {
  /** Finds work that this instance holds without knowing. Undefined unless the response to a claim was lost. */
  unknown(): UnknownWork | undefined;
}

/** The instance, as its handovers see it. */
export interface HandoverHost<W extends Work, S> {
  recovered(works: readonly Recovered<W, S>[]): void;
  error(error: unknown, where: string): void;
}

export interface HandoverOptions<W extends Work, S extends { readonly by: 'holder' | 'reclaimer' }> {
  readonly store: Pick<WorkStore<W, S>, 'held' | 'heldBy' | 'strays' | 'settle' | 'insertFailedRun'>;
  readonly clock: Clock;
  readonly runner: HandoverRunner<W, S>;
  readonly engine: HandoverEngine;
  readonly host: HandoverHost<W, S>;
  /**
   * Returns true if this instance is to look for strays in this period. Left out if instances know different sources,
   * so that each looks for its own strays.
   */
  readonly turn?: (periodMs: number) => Promise<boolean>;
}

export interface StraySearch extends Omit<StrayQuery, 'lives' | 'limit'> {
  /** Reads which instances are registered, dead ones included. */
  readonly lives: () => Promise<readonly Instance[]>;
}

interface UnknownWork {
  readonly has: (work: Work) => boolean;
  /** Called after a search whose finds were all handed back. */
  readonly lookedFor: () => void;
}

interface Concluded<S> {
  readonly settlement: S;
  readonly failedRun?: FailedRun;
  readonly retryAt?: Date;
  /** As in the engine's `Conclusion`. */
  readonly needsStored?: true;
}

/** Work that was handed on, and what was recorded for it. */
export interface Recovered<W extends Work, S> extends Concluded<S> {
  readonly work: W;
  readonly finished: Finished;
}

const BATCH = 500;
const CRASHED: FailureKind = 'crashed';

/** If a database rule refuses one record, the others must still be handed on. */
const blame = (error: unknown): Blame =>
  error instanceof StoreError && error.transient ? 'again' : 'choked';

/** Settles work, of one kind, that its holder can no longer settle. */
export class Handover<W extends Work, S extends { readonly by: 'holder' | 'reclaimer' }> {
  readonly #options: HandoverOptions<W, S>;
  /** Consecutive calls in which the store had a transient error. */
  #troubles = 0;

  constructor(options: HandoverOptions<W, S>) {
    this.#options = options;
  }

  /** Hands on everything that a fenced instance held. Returns false if something is left for the next time. */
  async emptied(instance: Instance, policies: Policies, stop: AbortSignal): Promise<boolean> {
    for (;;) {
      const works = await this.#options.store.heldBy(instance, BATCH);
      if (works.length === 0) return true;
      if (stop.aborted || (await this.#handOn(works, policies)) === 0) return false;
    }
  }

  /** Hands on strays: work held under no valid lease. */
  async strays({ lives, ...query }: StraySearch): Promise<void> {
    const { store, turn } = this.#options;
    if (turn !== undefined && !(await turn(query.olderThanMs))) return;
    const found = await store.strays({ ...query, lives: await lives(), limit: BATCH });
    if (found.length === 0) return;
    // While this process was paused before the search, others may have registered and claimed what it found. A life
    // registers before it claims, so only a list that is read after the search shows which holders are really gone.
    const registered = new Map((await lives()).map(({ life, instanceId }) => [life, instanceId]));
    const strays = found.filter(({ leaseToken, claimedBy }) => {
      const holder = registered.get(lifeOf(leaseToken) ?? '');
      return holder === undefined || holder !== claimedBy;
    });
    if (strays.length > 0) await this.#handOn(strays, {});
  }

  /** Hands back work of a claim that took effect after this instance gave up on its response. No attempt is used. */
  async handBackUnknown(self: Instance, leaseMs: number): Promise<void> {
    const { store, clock, runner, engine } = this.#options;
    const unknown = engine.unknown();
    if (unknown === undefined) return;
    const finishedAt = clock.now();
    const works = (await store.heldBy(self, BATCH)).filter(
      (work) => unknown.has(work) && (work.lockedAt?.getTime() ?? 0) < finishedAt - leaseMs,
    );
    const finished: Finished = { outcome: { kind: 'released' }, finishedAt };
    const released = works.map((work) => ({
      work,
      finished,
      ...runner.conclude(work, finished, { policies: {} }),
    }));
    const isAll = await this.#eachPart(released, async (part) => {
      await store.settle(part.map(({ settlement }) => settlement));
    });
    if (isAll) unknown.lookedFor();
  }

  /** Returns how many of them this call has written. */
  async #handOn(works: readonly W[], policies: Policies): Promise<number> {
    const { store, clock, runner, host } = this.#options;
    const finishedAt = clock.now();
    const conclusions: Recovered<W, S>[] = [];
    for (const work of works) {
      const finished = { outcome: outcomeOf(work, runner.isLastAttempt(work, policies)), finishedAt };
      const ended = { work, finished, about: { policies } };
      conclusions.push({ work, finished, ...(await concludeStored(store, runner, ended)) });
    }
    const written: Recovered<W, S>[] = [];
    await this.#eachPart(conclusions, async (part) => {
      written.push(...(await this.#write(part)));
    });
    if (written.length > 0) host.recovered(written);
    return written.length;
  }

  async #write(part: readonly Recovered<W, S>[]): Promise<readonly Recovered<W, S>[]> {
    const { store } = this.#options;
    for (const { work, failedRun } of part) {
      if (failedRun !== undefined) await store.insertFailedRun?.(work, failedRun);
    }
    const answers = await store.settle(part.map(({ settlement }) => ({ ...settlement, by: 'reclaimer' })));
    return part.filter((_one, index) => answers[index] === 'settled');
  }

  /**
   * Reports records that the database refuses, and leaves them for the next time. A single record may cause a transient
   * error, so the pieces get smaller after each failure. Returns false if a transient error left some unwritten.
   */
  async #eachPart(
    all: readonly Recovered<W, S>[],
    statement: (part: readonly Recovered<W, S>[]) => Promise<void>,
  ): Promise<boolean> {
    // An empty batch tells nothing about the store, so `#troubles` stays.
    if (all.length === 0) return true;
    const attempt = async (part: readonly Recovered<W, S>[]): Promise<Tried<Recovered<W, S>>> => {
      const { choked, left, trouble } = await tryInHalves(part, statement, blame);
      for (const { item, reason } of choked) this.#refused(item, reason);
      return { left, trouble };
    };
    const size = Math.max(1, Math.ceil(all.length / 2 ** this.#troubles));
    const { trouble, answered } = await inPieces(all, size, attempt);
    this.#troubles = trouble === undefined ? 0 : this.#troubles + 1;
    if (trouble !== undefined && !answered) throw asError(trouble);
    if (trouble !== undefined) this.#error(trouble);
    return trouble === undefined;
  }

  #refused({ work: { name, id } }: Recovered<W, S>, reason: string): void {
    const message = `The database refuses the recovery of ${name} ${id}, whose process died: ${reason} Tidemill retries it.`;
    this.#error(new TidemillError('OUTCOME_REFUSED', message));
  }

  #error(error: unknown): void {
    this.#options.host.error(error, 'reclaim');
  }
}

/**
 * A crash counts as a failed attempt. Work that crashed before, and work at its last attempt, is marked when it really
 * starts (`begin`). If its process dies before that, it is handed back without using an attempt: it is not charged for
 * the crashes of its neighbours, and does not fail without having run.
 */
function outcomeOf(work: Work, isLastAttempt: boolean): Finished['outcome'] {
  const lease = leaseOf(work);
  const isMarked = work.failKind === CRASHED || isLastAttempt;
  if (isMarked && lease.token !== null && work.startedToken !== lease.token) return { kind: 'released' };
  const holder = work.claimedBy ?? 'an unknown process';
  return {
    kind: 'crashed',
    error: new Error(`The process that ran this attempt (${holder}) died or lost its lease.`),
  };
}
