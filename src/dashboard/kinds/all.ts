/** The three kinds of work by name. */
import type { WorkKind } from '../contract.js';
import type { Mill } from '../options.js';
import { documents } from './documents.js';
import { jobs } from './jobs.js';
import type { Kind } from './kind.js';
import { tasks } from './tasks.js';

export const KIND: Readonly<Record<WorkKind, Kind>> = { jobs, tasks, documents };

/** The kinds that a page lists: documents only if this mill defines document schedules. */
export const kindsOf = (mill: Mill): readonly WorkKind[] => [
  'jobs',
  'tasks',
  ...(mill.documentSchedules().length === 0 ? [] : (['documents'] as const)),
];
