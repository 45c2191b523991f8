import { TidemillError } from '../core/errors.js';

/**
 * All or nothing, for code that passes a transaction along: steps are gathered, checked and applied together at the
 * end of `mill.withTransaction`. Nothing else can run in between, so a step that was possible stays possible.
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
        'The transaction met a change made meanwhile; nothing was written.',
      );
    }
    for (const step of this.#steps) step.apply();
  }
}
