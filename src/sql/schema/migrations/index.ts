import { jobs } from './0001-jobs.js';
import { reactive } from './0002-reactive.js';
import { metrics } from './0003-metrics.js';
import { audit } from './0004-audit.js';
import { watching } from './0005-watching.js';
import { compatible } from './0006-compatible.js';
import { runs } from './0007-runs.js';
import { writes } from './0008-writes.js';
import { partitions } from './0009-partitions.js';
import { outbox } from './0010-outbox.js';
import { existing } from './0011-existing.js';
import { limits } from './0012-limits.js';
import { taskKeys } from './0013-task-keys.js';
import type { Migration } from './migration.js';

/** In order. The version of a schema is that of the last step that was applied to it. */
export const migrations: readonly Migration[] = [
  jobs,
  reactive,
  metrics,
  audit,
  watching,
  compatible,
  runs,
  writes,
  partitions,
  outbox,
  existing,
  limits,
  taskKeys,
];
