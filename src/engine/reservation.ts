import type { Work } from '../core/work.js';
import type { Claimant } from '../store/port.js';

/** A slot for work that is about to be stored as claimed already. Either end of it gives the slot back. */
export interface Reservation<W extends Work> {
  readonly claim: Claimant;
  /** It was stored: it runs, unless its name is paused or the instance is ending; then it goes back. */
  fulfil(work: W): void;
  /** It was not stored, or nobody knows. */
  cancel(stored: 'not' | 'unknown'): void;
}
