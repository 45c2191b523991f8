import { lazily, type Lazy } from '../core/lazily.js';
import type * as holding from './holding.js';

export const loadHolding: Lazy<typeof holding> = lazily(() => import('./holding.js'));
