import { Tidemill, type TidemillOptions } from '../../src/index.js';
import type { Store } from '../../src/store/port.js';
import { cleanUpAfterEach } from './cleanup.js';

export { gate, rarely, until } from '../../src/testing/conformance/fixtures.js';

const open: Tidemill[] = [];

cleanUpAfterEach(() => Promise.all(open.splice(0).map((mill) => mill.stop({ timeout: 0 }))));

/** A mill that is stopped after the test. Silent, unless the test listens. */
export function aMill(store: Store, options: Partial<TidemillOptions> = {}): Tidemill {
  const mill = new Tidemill({ store, logger: false, ...options });
  open.push(mill);
  return mill;
}
