/** Code that few calls need, loaded when they do. */
import { lazily } from '../../../core/lazily.js';
import type * as existing from './existing.js';

export const loadExisting: () => Promise<typeof existing> = lazily(() => import('./existing.js'));
