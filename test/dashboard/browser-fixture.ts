import type { SampleMill } from './sample-mill.js';
import type { Visit, VisitOptions } from './visit.js';

/** What all tests of the page share: one browser, and one dashboard of a mill with work in every state. */
export interface BrowserFixture {
  /** Available once the first test begins. */
  readonly sample: SampleMill;
  readonly url: string;
  readonly cut: () => void;
  /** Opens the page as an administrator, unless the options say otherwise. */
  readonly visit: (options?: Partial<VisitOptions>) => Promise<Visit>;
}
