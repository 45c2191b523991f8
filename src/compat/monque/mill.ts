/** The options of Monque as those of a `Tidemill`. */
import { emitWarning } from 'node:process';
import type { Db } from 'mongodb';
import { Tidemill, type RetryPolicy } from '../../index.js';
import { mongodb, type MongodbStore } from '../../mongodb/index.js';
import type { MonqueOptions } from './options.js';
import { DEFAULT_BASE_INTERVAL, DEFAULT_JITTER_FACTOR, DEFAULT_MAX_BACKOFF_DELAY } from './rules.js';

/** Jobs stay for ever unless `jobRetention` says otherwise; this is the longest time that there is. */
const FOR_EVER = '1000000d';
const MOST_SLOTS = 10_000;

/** What instances agree on is beside each collection of jobs: whoever hands on the jobs of the dead looks into one only. */
export function storeOf(
  db: Db,
  { collectionName: jobs = 'monque_jobs', skipIndexCreation }: MonqueOptions,
): MongodbStore {
  return mongodb({
    client: db.client,
    database: db.databaseName,
    collections: { jobs, globals: `${jobs}_globals`, metrics: `${jobs}_metrics`, audit: `${jobs}_audit` },
    createIndexes: skipIndexCreation !== true,
  });
}

export const retryPolicyOf = ({
  maxRetries = 10,
  baseRetryInterval = DEFAULT_BASE_INTERVAL,
  maxBackoffDelay = DEFAULT_MAX_BACKOFF_DELAY,
}: MonqueOptions): RetryPolicy => ({
  type: 'exponential',
  min: Math.min(2 * baseRetryInterval, maxBackoffDelay),
  max: maxBackoffDelay,
  maxAttempts: maxRetries,
  jitter: DEFAULT_JITTER_FACTOR,
});

export function millOf(store: MongodbStore, options: MonqueOptions): Tidemill<MongodbStore> {
  const { pollInterval = 1_000, shutdownTimeout, schedulerInstanceId, recoverStaleJobs } = options;
  for (const [old, now] of [
    ['defaultConcurrency', 'workerConcurrency'],
    ['maxConcurrency', 'instanceConcurrency'],
  ] as const)
    if (options[old] !== undefined) emitWarning(`Monque: ${old} is the old name of ${now}.`);
  const { leaseDuration, logger } = options;
  return new Tidemill({
    store,
    concurrency: options.instanceConcurrency ?? options.maxConcurrency ?? MOST_SLOTS,
    pollInterval: { min: Math.min(100, pollInterval), max: pollInterval },
    retention: { completed: FOR_EVER, failed: FOR_EVER, cancelled: FOR_EVER },
    ...(shutdownTimeout === undefined ? {} : { shutdownTimeout }),
    ...(schedulerInstanceId === undefined ? {} : { instanceId: schedulerInstanceId }),
    ...(recoverStaleJobs === undefined ? {} : { recoverStaleJobs }),
    ...(leaseDuration === undefined ? {} : { leaseDuration }),
    ...(logger === undefined ? {} : { logger }),
  });
}
