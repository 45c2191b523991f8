/** Parts of a scheduler that are loaded on first use: a process may define schedules and run none. */
import { lazily } from '../core/lazily.js';
import type * as finding from './finding.js';
import type * as opened from './opened.js';
import type * as run from './run/scheduler-run.js';

export const loadFinding: () => Promise<typeof finding> = lazily(() => import('./finding.js'));
export const loadOpened: () => Promise<typeof opened> = lazily(() => import('./opened.js'));
export const loadRun: () => Promise<typeof run> = lazily(() => import('./run/scheduler-run.js'));
