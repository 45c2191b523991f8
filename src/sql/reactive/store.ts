import { OptionError } from '../../core/errors.js';
import { show } from '../../core/options.js';
import type { Lazy } from '../../core/lazily.js';
import { deferReactive } from '../../store/helpers/deferred-reactive.js';
import type { Partitioned } from '../../store/reactive/partitions.js';
import type { ReactiveStore } from '../../store/reactive/reactive.js';
import type { Queryable } from '../connection/driver.js';
import { checkPlan } from './check.js';
import type { OpenReactive } from './opened.js';

/** Reactive tasks. Definitions are checked here; opened.ts has the rest, which is loaded on the first call. */
export const reactiveStore = (open: Lazy<OpenReactive>): ReactiveStore<Queryable> & Partitioned => ({
  check: checkPlan,
  useGlobals: (collection) => {
    throw new OptionError(
      `reactive.globalsCollection (${show(collection)}) applies to MongoDB only; this store keeps everything in its \`schema\`.`,
    );
  },
  ...deferReactive(open, ['planTogether', 'outbox']),
});
