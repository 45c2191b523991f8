import type { ClientSession } from 'mongodb';
import type { Lazy } from '../../core/lazily.js';
import { deferReactive } from '../../store/helpers/deferred-reactive.js';
import type { Partitioned } from '../../store/reactive/partitions.js';
import type { ReactiveStore } from '../../store/reactive/reactive.js';
import type { OpenReactive } from './opened.js';
import { checkPlan } from './plan/filter.js';

/** Reactive tasks. Definitions are checked here; opened.ts has the rest, which is loaded on the first call. */
export const reactiveStore = (
  open: Lazy<OpenReactive>,
  useGlobals: (collection: string) => void,
): ReactiveStore<ClientSession> & Partitioned => ({
  check: checkPlan,
  useGlobals,
  ...deferReactive(open, ['planTogether', 'historySince']),
});
