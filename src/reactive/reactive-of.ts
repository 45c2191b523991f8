import { OptionError } from '../core/errors.js';
import type { Partitioned } from '../store/reactive/partitions.js';
import type { Store } from '../store/port.js';
import type { ReactiveStore } from '../store/reactive/reactive.js';

/** Returns the reactive part of a store. Throws if the store's data cannot be watched. */
export function reactiveOf(store: Store): ReactiveStore & Partitioned {
  if (store.reactive !== undefined) return store.reactive;
  throw new OptionError(
    `The ${store.kind} store has no data to watch: reactive tasks need MongoDB (tidemill/mongodb), PostgreSQL ` +
      '(tidemill/postgres), the embedded store (tidemill/embedded) or the memory store (tidemill/memory).',
  );
}
