import type { Stage } from './stage.js';
import type { Visit, VisitOptions } from './visit.js';

/** What all tests of the page share: one browser, and one dashboard of a mill with work in every state. */
export interface Ground {
  /** Available once the first test begins. */
  readonly scene: Stage;
  readonly url: string;
  readonly cut: () => void;
  /** Opens the page as an administrator, unless the options say otherwise. */
  readonly visit: (options?: Partial<VisitOptions>) => Promise<Visit>;
}
