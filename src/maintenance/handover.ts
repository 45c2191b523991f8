import type { Clock } from '../core/clock.js';
import { StoreError, TidemillError } from '../core/errors.js';
import { bisect, type Blame } from '../core/batches/bisect.js';
import type { Finished } from '../core/records/outcome.js';
import { inPieces, type Tried } from '../core/batches/pieces.js';
import type { FailureKind, Work } from '../core/records/work.js';
import { leaseOf, type FailedRun, type Instance, type StrayQuery, type WorkStore } from '../store/port.js';

export type Policies = Readonly<Record<string, unknown>>;

export interface HandoverOptions<W extends Work, S extends { readonly by: 'holder' | 'reclaimer' }> {
  readonly store: Pick<WorkStore<W, S>, 'heldBy' | 'strays' | 'settle' | 'insertFailedRun'>;
  readonly clock: Clock;
  /** What a crashed attempt comes to, by the policies of whoever ran it. */
  readonly conclude: (work: W, finished: Finished, policies: Policies) => Concluded<S>;
  /** True where the process that ran it, by its policies, marked the start of this attempt as the last one. */
  readonly isLastAttempt: (work: W, policies: Policies) => boolean;
  /** Work of this instance's own life that it does not know of, if there is reason to look: a claim's answer was lost. */
  readonly unknown: () => UnknownWork | undefined;
  /**
   * True where it is for this instance to look for strays now. Left out where instances know different sources, so that
   * each has to look for its own.
   */
  readonly turn?: (periodMs: number) => Promise<boolean>;
  readonly recovered: (works: readonly Recovered<W, S>[]) => void;
  readonly error: (error: unknown) => void;
}

interface UnknownWork {
  readonly has: (work: Work) => boolean;
  /** Called after a look that found, and handed back, all there was. */
  readonly lookedFor: () => void;
}

interface Concluded<S> {
  readonly settlement: S;
  readonly failedRun?: FailedRun;
  readonly retryAt?: Date;
}

/** Work that was handed on, and what it came to. */
export interface Recovered<W extends Work, S> extends Concluded<S> {
  readonly work: W;
  readonly finished: Finished;
}

const BATCH = 500;
const CRASHED: FailureKind = 'crashed';

const isTransient = (error: unknown): error is StoreError => error instanceof StoreError && error.transient;
/** A rule of the database that refuses one record must not keep the rest with a dead process. */
const blame = (error: unknown): Blame => (isTransient(error) ? 'again' : 'choked');

/** Hands on one kind of work that its holder cannot end any more. */
export class Handover<W extends Work, S extends { readonly by: 'holder' | 'reclaimer' }> {
  readonly #options: HandoverOptions<W, S>;
  /** How often in a row the store had trouble. */
  #troubles = 0;

  constructor(options: HandoverOptions<W, S>) {
    this.#options = options;
  }

  /** Hands on everything that a fenced instance held; false where something is left for the next time. */
  async emptied(instance: Instance, policies: Policies, stop: AbortSignal): Promise<boolean> {
    for (;;) {
      const works = await this.#options.store.heldBy(instance, BATCH);
      if (works.length === 0) return true;
      if (stop.aborted || (await this.#handOn(works, policies)) === 0) return false;
    }
  }

  /** Held under no lease that is valid. */
  async strays(query: Omit<StrayQuery, 'limit'>): Promise<void> {
    const { store, turn } = this.#options;
    if (turn !== undefined && !(await turn(query.olderThanMs))) return;
    const works = await store.strays({ ...query, limit: BATCH });
    if (works.length > 0) await this.#handOn(works, {});
  }

  /** A claim that took effect after its answer had been given up: nobody runs it, so it goes back uncounted. */
  async handBackUnknown(self: Instance, leaseMs: number): Promise<void> {
    const { store, clock, conclude } = this.#options;
    const unknown = this.#options.unknown();
    if (unknown === undefined) return;
    const finishedAt = clock.now();
    const works = (await store.heldBy(self, BATCH)).filter(
      (work) => unknown.has(work) && (work.lockedAt?.getTime() ?? 0) < finishedAt - leaseMs,
    );
    const finished: Finished = { outcome: { kind: 'released' }, finishedAt };
    const released = works.map((work) => ({ work, finished, ...conclude(work, finished, {}) }));
    const isAll = await this.#eachPart(released, async (part) => {
      await store.settle(part.map(({ settlement }) => settlement));
    });
    if (isAll) unknown.lookedFor();
  }

  /** Answers how many of them were written by this call. */
  async #handOn(works: readonly W[], policies: Policies): Promise<number> {
    const { clock, conclude, recovered, isLastAttempt } = this.#options;
    const finishedAt = clock.now();
    const conclusions = works.map((work) => {
      const finished = { outcome: outcomeOf(work, isLastAttempt(work, policies)), finishedAt };
      return { work, finished, ...conclude(work, finished, policies) };
    });
    const written: Recovered<W, S>[] = [];
    await this.#eachPart(conclusions, async (part) => {
      written.push(...(await this.#write(part)));
    });
    if (written.length > 0) recovered(written);
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
   * What the database refuses is reported, and left for the next time. Trouble that seems to pass may be one record's own: from the
   * second time on all goes in ever smaller pieces. False if trouble has kept some of it.
   */
  async #eachPart(
    all: readonly Recovered<W, S>[],
    statement: (part: readonly Recovered<W, S>[]) => Promise<void>,
  ): Promise<boolean> {
    // Says nothing of the store.
    if (all.length === 0) return true;
    const attempt = async (part: readonly Recovered<W, S>[]): Promise<Tried<Recovered<W, S>>> => {
      try {
        for (const { item, reason } of await bisect(part, statement, blame)) this.#refused(item, reason);
        return { left: [] };
      } catch (error) {
        if (!isTransient(error)) throw error;
        return { left: part, trouble: error };
      }
    };
    const size = Math.max(1, Math.ceil(all.length / 2 ** this.#troubles));
    const { trouble, answered } = await inPieces(all, size, attempt);
    this.#troubles = trouble === undefined ? 0 : this.#troubles + 1;
    if (trouble !== undefined && !answered) throw trouble;
    if (trouble !== undefined) this.#options.error(trouble);
    return trouble === undefined;
  }

  #refused({ work: { name, id } }: Recovered<W, S>, reason: string): void {
    const message = `The database refuses to hand on ${name} ${id}, whose process died: ${reason} It is tried again.`;
    this.#options.error(new TidemillError('OUTCOME_REFUSED', message));
  }
}

/**
 * A crash counts as a failed attempt. Work that crashed before, and work at its last attempt, is marked when it really
 * starts (`begin`): if its process dies while it was only waiting its turn, it is handed back uncounted. So it does not
 * pay for its neighbours, and does not end before it began.
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
