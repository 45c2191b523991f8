import type { Finished } from '../../core/records/outcome.js';
import type { Work } from '../../core/records/work.js';
import { leaseOf, type WorkStore } from '../work.js';

/** Decides what the end of an attempt writes. */
interface Concluder<W extends Work, About, C> {
  conclude(work: W, finished: Finished, about: About & { readonly isStored?: boolean }): C;
}

/** One attempt that has ended, and what else its conclusion depends on. */
interface Ended<W extends Work, About> {
  readonly work: W;
  readonly finished: Finished;
  readonly about: About;
}

/**
 * Concludes, and if the conclusion copies the payload, reads the work and concludes again. Work that is not held any more
 * keeps its first conclusion: the store will not write it.
 */
export async function concludeStored<
  W extends Work,
  About extends object,
  C extends { readonly needsStored?: true },
>(
  store: Pick<WorkStore<W, unknown>, 'held'>,
  runner: Concluder<W, About, C>,
  { work, finished, about }: Ended<W, About>,
): Promise<C> {
  const conclusion = runner.conclude(work, finished, about);
  if (conclusion.needsStored !== true) return conclusion;
  const [stored] = await store.held([leaseOf(work)]);
  if (stored === undefined) return conclusion;
  return runner.conclude(stored, finished, { ...about, isStored: true });
}
