/** Parts of a mill that a process which only enqueues does without. Each is loaded on first use. */
import { lazily } from '../core/lazily.js';
import type * as doctor from './doctor.js';
import type * as runtime from './instance-runtime.js';
import type * as why from './why.js';

export const loadDoctor: () => Promise<typeof doctor> = lazily(() => import('./doctor.js'));
export const loadRuntime: () => Promise<typeof runtime> = lazily(() => import('./instance-runtime.js'));
export const loadWhy: () => Promise<typeof why> = lazily(() => import('./why.js'));
