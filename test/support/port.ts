import type { Store } from '../../src/store/port.js';
import { cleanUpAfterEach } from './cleanup.js';

export {
  aClaim,
  aJob,
  ahead,
  anInstance,
  aRegistration,
  done,
} from '../../src/testing/conformance/fixtures.js';

const releases: (() => Promise<void>)[] = [];
cleanUpAfterEach(() => Promise.all(releases.splice(0).map((release) => release())));

/** A store that is open for one test. */
export async function opened<S extends Store>(store: S): Promise<S> {
  const holder = {};
  releases.push(() => store.release(holder));
  await store.acquire(holder);
  return store;
}
