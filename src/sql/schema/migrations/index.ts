import { jobs } from './0001-jobs.js';
import { reactive } from './0002-reactive.js';
import { metrics } from './0003-metrics.js';
import { audit } from './0004-audit.js';
import { watching } from './0005-watching.js';
import { compatible } from './0006-compatible.js';
import type { Migration } from './migration.js';

/** In order. The version of a schema is the number of steps that were applied to it. */
export const migrations: readonly Migration[] = [jobs, reactive, metrics, audit, watching, compatible];
