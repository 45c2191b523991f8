/** Reads the jobs of Monque, whose shape is nearly ours. */
import type { SourceDocument } from '../../../mill/tools.js';
import { dateOf, MongoCollection, numberOf, textOf } from '../mongo-collection.js';
import { isOwnTime } from '../own-time.js';
import {
  failedPast,
  batches,
  OWN_KEY,
  OWN_TIME,
  type Count,
  type Reading,
  type Source,
  type SourceOptions,
} from '../reading.js';

const LOCK_LIFETIME_MS = 1_800_000;
const FINISHED = { status: { $in: ['completed', 'cancelled'] } };

const MAPPING = [
  ['pending', 'a pending job with the same time, unique key and failures so far'],
  ['repeatInterval', 'a schedule with the same cron text'],
  ['failed, failReason', 'a failed job, which `tidemill retry` runs again'],
  ['nothing, if you serve the collection in place', 'tidemill/compat/monque works on it as it is'],
] as const;

export async function openMonque(options: SourceOptions): Promise<Source> {
  const documents = await MongoCollection.open(options.url, options.collection ?? 'monque_jobs');
  return {
    place: documents.place,
    mapping: MAPPING,
    count: () => countsOf(documents),
    read: (now) => batches(documents.all({ $nor: [FINISHED] }), (document) => read(document, options, now)),
    version: (record) => documents.version(record),
    remove: (records) => documents.remove(records),
    [Symbol.asyncDispose]: () => documents[Symbol.asyncDispose](),
  };
}

const countsOf = (documents: MongoCollection): Promise<readonly Count[]> =>
  Promise.all(
    ['pending', 'processing', 'failed', 'completed', 'cancelled'].map(async (status) => ({
      state: status,
      count: await documents.count({ status }),
      finished: status === 'completed' || status === 'cancelled',
    })),
  );

function read(document: SourceDocument, options: SourceOptions, now: Date): Reading {
  const key = String(document._id);
  const name = textOf(document['name']);
  const common = { key, name: name ?? '', record: document };
  const status = document['status'];
  if (name === undefined) return { kind: 'left', ...common, reason: 'it has no name' };
  const lockedAt = status === 'processing' ? lastSign(document) : undefined;
  const isLost =
    status === 'processing' &&
    now.getTime() - (lockedAt?.getTime() ?? 0) > (options.lockLifetimeMs ?? LOCK_LIFETIME_MS);
  if (status === 'processing' && !isLost && !options.includeRunning)
    return {
      kind: 'left',
      ...common,
      reason: 'it runs there now: its lock is younger than the lock lifetime (--include-running imports it)',
    };
  const data = document['data'] ?? null;
  const id = `monque:${key}`;
  const runAt = dateOf(document['nextRunAt']) ?? lockedAt ?? dateOf(document['createdAt']) ?? now;
  const interval = textOf(document['repeatInterval']);
  if (interval !== undefined && status !== 'failed')
    return scheduleOf({ ...common, name }, { interval, data, runAt, id }, document, options, now);
  return {
    kind: 'job',
    ...common,
    job: {
      id,
      name,
      data,
      runAt,
      createdAt: dateOf(document['createdAt']),
      uniqueKey: textOf(document['uniqueKey']),
      past: pastOf(document, status === 'failed'),
    },
    differs: [
      ...(status === 'processing' && isLost
        ? ['its lock was older than the lock lifetime: its run begins again here']
        : []),
      ...(status === 'processing' && !isLost ? ['it ran there when it was read: it may run twice'] : []),
      ...(interval === undefined
        ? []
        : ['it was a recurring job whose attempts were used up: its schedule has ended']),
    ],
  };
}

/** The last sign of life of a run. */
function lastSign(document: SourceDocument): Date | undefined {
  const signs = ['lockedAt', 'lastHeartbeat'].flatMap((field) => dateOf(document[field])?.getTime() ?? []);
  return signs.length === 0 ? dateOf(document['updatedAt']) : new Date(Math.max(...signs));
}

function scheduleOf(
  common: { readonly key: string; readonly name: string; readonly record: SourceDocument },
  facts: { readonly interval: string; readonly data: unknown; readonly runAt: Date; readonly id: string },
  document: SourceDocument,
  { timezone }: SourceOptions,
  now: Date,
): Reading {
  const { interval, data, runAt, id } = facts;
  const key = textOf(document['uniqueKey']);
  const ownTime = isOwnTime(interval, undefined, runAt);
  return {
    kind: 'schedule',
    ...common,
    schedule: {
      name: common.name,
      // Without a key, Monque keeps one more at each call.
      uniqueKey: key ?? id,
      times: interval,
      timezone,
      data,
      separateRun:
        runAt <= now || ownTime
          ? {
              id: `${id}@${runAt.toISOString()}`,
              runAt,
              isOwnTime: ownTime,
              past: pastOf(document, false),
            }
          : undefined,
    },
    differs: [
      ...(key === undefined ? [OWN_KEY] : []),
      ...(ownTime && runAt > now ? [OWN_TIME] : []),
      'Monque has no zones: its times were those of the old process, and are read in the zone of --timezone',
    ],
  };
}

function pastOf(
  document: SourceDocument,
  failed: boolean,
): NonNullable<(Reading & { kind: 'job' })['job']['past']> | undefined {
  const failCount = numberOf(document['failCount']) ?? 0;
  const failReason = textOf(document['failReason']) ?? 'failed';
  const failedAt = dateOf(document['updatedAt']) ?? new Date();
  if (failed) return { failed, ...failedPast({ failReason, attempt: Math.max(1, failCount), failedAt }) };
  return failCount < 1
    ? undefined
    : { failed, failCount, failReason, failKind: 'error', firstFailedAt: failedAt };
}
