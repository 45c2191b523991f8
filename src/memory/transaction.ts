import { TidemillError } from '../core/errors.js';

/**
 * Collects the writes of a transaction. At the end of `mill.withTransaction` all of them are checked, then all are
 * applied, or none. Both happen in one synchronous call, so nothing can invalidate a check before its write is applied.
 */
export class MemoryTransaction {
  readonly #steps: { check: () => boolean; apply: () => void }[] = [];
  #ended = false;

  /** @internal */
  add(check: () => boolean, apply: () => void): void {
    if (this.#ended)
      throw new TidemillError('TRANSACTION_ENDED', 'This transaction has ended; begin another one.');
    this.#steps.push({ check, apply });
  }

  /** @internal */
  commit(): void {
    this.#ended = true;
    if (!this.#steps.every((step) => step.check())) {
      throw new TidemillError(
        'TRANSACTION_CONFLICT',
        'The transaction conflicts with a change made in the meantime; nothing was written. Run it again.',
      );
    }
    for (const step of this.#steps) step.apply();
  }
}
