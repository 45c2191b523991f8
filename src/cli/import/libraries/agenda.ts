/** Reads the jobs of Agenda 4 to 6, and those of Pulse, which have the same shape and some fields more. */
import type { RetryPolicy } from '../../../index.js';
import type { Past, SourceDocument } from '../../../mill/tools.js';
import { recurring, type Recurring } from './agenda-recurring.js';
import { dateOf, MongoCollection, numberOf, textOf } from '../mongo-collection.js';
import {
  failedPast,
  batches,
  priorityOf,
  type Count,
  type Reading,
  type Source,
  type SourceOptions,
} from '../reading.js';

const LOCK_LIFETIME_MS = 600_000;
const PRIORITIES: Readonly<Record<string, number>> = { lowest: -20, low: -10, high: 10, highest: 20 };

/** Never due again, not locked, and its last run ended well. Both libraries keep such documents for ever. */
const FINISHED = {
  nextRunAt: null,
  lockedAt: null,
  repeatInterval: null,
  repeatAt: null,
  lastFinishedAt: { $type: 'date' },
  $expr: {
    $and: [
      {
        $or: [{ $eq: [{ $ifNull: ['$failedAt', null] }, null] }, { $lt: ['$failedAt', '$lastFinishedAt'] }],
      },
      { $lte: [{ $ifNull: ['$lastRunAt', '$lastFinishedAt'] }, '$lastFinishedAt'] },
    ],
  },
};
const UNFINISHED = { $nor: [FINISHED] };

const MAPPING = [
  ['nextRunAt', 'runAt; what is overdue runs at once'],
  ['repeatInterval, cron', 'a schedule with the same text and zone; skipDays become its days of the week'],
  ['repeatInterval, "3 minutes" or a number', 'a schedule @every, from its next run on'],
  ['priority, -20 to 20', 'priority, -10 to 10: half of it'],
  ['disabled, of a recurring job', 'a paused schedule'],
  ['failedAt, failReason', 'a failed job, which `tidemill retry` runs again'],
] as const;

/** What `attempts` and `backoff` of Pulse become: `attempts` retries after the first attempt. */
function pulseRetries(document: SourceDocument): RetryPolicy | undefined {
  const { attempts, backoff } = document as {
    attempts?: unknown;
    backoff?: { type?: unknown; delay?: unknown };
  };
  const retries = numberOf(attempts) ?? 0;
  const interval = numberOf(backoff?.delay);
  if (retries < 1 || interval === undefined) return undefined;
  const maxAttempts = Math.floor(retries) + 1;
  return backoff?.type === 'exponential'
    ? { type: 'exponential', min: Math.max(1, interval), max: '365d', maxAttempts }
    : { type: 'fixed', interval, maxAttempts };
}

interface Dialect {
  readonly library: 'agenda' | 'pulse';
  readonly collection: string;
  readonly retries: (document: SourceDocument) => RetryPolicy | undefined;
}

const DIALECTS: Readonly<Record<Dialect['library'], Dialect>> = {
  agenda: { library: 'agenda', collection: 'agendaJobs', retries: () => undefined },
  pulse: { library: 'pulse', collection: 'pulseJobs', retries: pulseRetries },
};

export async function openAgenda(library: Dialect['library'], options: SourceOptions): Promise<Source> {
  const dialect = DIALECTS[library];
  const documents = await MongoCollection.open(options.url, options.collection ?? dialect.collection);
  return {
    place: documents.place,
    mapping: MAPPING,
    count: () => countsOf(documents),
    read: (now) => batches(documents.all(UNFINISHED), (document) => read(dialect, document, options, now)),
    version: (record) => documents.version(record),
    remove: (records) => documents.remove(records),
    [Symbol.asyncDispose]: () => documents[Symbol.asyncDispose](),
  };
}

async function countsOf(documents: MongoCollection): Promise<readonly Count[]> {
  const [unfinished, finished] = await Promise.all([documents.count(UNFINISHED), documents.count(FINISHED)]);
  return [
    { state: 'waiting, recurring, running or failed', count: unfinished },
    { state: 'finished', count: finished, finished: true },
  ];
}

interface Common {
  readonly key: string;
  readonly name: string;
  readonly record: SourceDocument;
}

function read(dialect: Dialect, document: SourceDocument, options: SourceOptions, now: Date): Reading {
  const key = String(document._id);
  const name = textOf(document['name']);
  const common: Common = { key, name: name ?? '', record: document };
  const left = (reason: string, detail?: string): Reading => ({
    kind: 'left',
    ...common,
    reason,
    ...(detail === undefined ? {} : { detail }),
  });
  if (name === undefined) return left('it has no name');
  const lockedAt = dateOf(document['lockedAt']);
  const lifetimeMs = options.lockLifetimeMs ?? LOCK_LIFETIME_MS;
  const isStale = lockedAt !== undefined && now.getTime() - lockedAt.getTime() > lifetimeMs;
  if (lockedAt !== undefined && !isStale && !options.includeRunning)
    return left(
      'it runs there now: its lock is younger than the lock lifetime (--include-running imports it)',
    );
  const id = `${dialect.library}:${key}`;
  const { priority, differs } = priorityIn(document);
  const base = { data: document['data'] ?? null, priority, retryPolicy: dialect.retries(document) };
  const found = recurring(document, {
    id,
    timezone: options.timezone,
    now,
    lostAt: isStale ? lockedAt : undefined,
    past: pastOfRun(document, base),
  });
  if (found !== undefined) return recurringReading(common, found, { ...base, name }, differs, left);
  if (document['disabled'] === true) return left('it is disabled there, and has no schedule to pause');
  const job = { id, name, ...base, createdAt: createdOf(document) };
  if (lockedAt !== undefined) {
    const why = isStale
      ? 'its lock was older than the lock lifetime: its run was lost, and begins again here'
      : 'it ran there when it was read: it may run twice';
    return { kind: 'job', ...common, job: { ...job, runAt: lockedAt }, differs: [...differs, why] };
  }
  const nextRunAt = dateOf(document['nextRunAt']);
  if (nextRunAt !== undefined)
    return {
      kind: 'job',
      ...common,
      differs,
      job: { ...job, runAt: nextRunAt, past: pastOf(document, job) },
    };
  return ended(document, { ...common, differs }, job, options, left);
}

function recurringReading(
  common: Common,
  found: Recurring,
  base: { readonly name: string; readonly data: unknown; readonly priority: number },
  differs: readonly string[],
  left: (reason: string, detail?: string) => Reading,
): Reading {
  if (found.kind === 'left') return left(found.reason, found.detail);
  return {
    kind: 'schedule',
    ...common,
    schedule: { ...base, ...found.schedule },
    differs: [...differs, ...found.differs],
  };
}

/** A job that is not due any more: failed, lost by a crash, or never due. */
function ended(
  document: SourceDocument,
  common: Common & { readonly differs: readonly string[] },
  job: { readonly id: string; readonly name: string; readonly data: unknown },
  { includeLost }: SourceOptions,
  left: (reason: string) => Reading,
): Reading {
  const [failedAt, finishedAt, startedAt] = ['failedAt', 'lastFinishedAt', 'lastRunAt'].map((field) =>
    dateOf(document[field]),
  );
  if (failedAt !== undefined && (finishedAt === undefined || failedAt >= finishedAt))
    return {
      kind: 'job',
      ...common,
      job: { ...job, runAt: failedAt, past: failure(document, failedAt) },
    };
  if (startedAt !== undefined && (finishedAt === undefined || finishedAt < startedAt)) {
    if (!includeLost)
      return left('its process died while it ran, and Agenda never runs it again (--include-lost does)');
    const why = 'its process died while it ran there: it begins again here';
    return { kind: 'job', ...common, job: { ...job, runAt: startedAt }, differs: [...common.differs, why] };
  }
  return left('it was saved without a time, so it is never due');
}

const createdOf = ({ _id }: SourceDocument): Date | undefined =>
  typeof _id === 'object' && _id !== null && 'getTimestamp' in _id
    ? (_id as { getTimestamp(): Date }).getTimestamp()
    : undefined;

function priorityIn(document: SourceDocument): { priority: number; differs: readonly string[] } {
  const given = document['priority'];
  const value = typeof given === 'string' ? (PRIORITIES[given] ?? Number(given)) : numberOf(given);
  if (value === undefined || Number.isNaN(value)) return { priority: 0, differs: [] };
  // Half, away from zero: the order of all levels stays.
  return priorityOf(Math.sign(value) * Math.ceil(Math.abs(value) / 2));
}

/** The failures of a job that waits for another attempt; they only count if the source limits them. */
function pastOf(
  document: SourceDocument,
  { retryPolicy }: { readonly retryPolicy?: RetryPolicy | undefined },
): (Past & { failed: false }) | undefined {
  const failCount = numberOf(document['failCount']) ?? 0;
  const failedAt = dateOf(document['failedAt']);
  if (failCount < 1 || failedAt === undefined) return undefined;
  return {
    failed: false,
    failCount: retryPolicy === undefined ? 0 : failCount,
    failReason: textOf(document['failReason']) ?? 'failed',
    failKind: 'error',
    firstFailedAt: failedAt,
  };
}

/**
 * The same for a recurring job whose last run failed. Pulse counts the failures of all runs together, and starts, so one
 * run has `attempts` retries after each first attempt.
 */
function pastOfRun(
  document: SourceDocument,
  base: { readonly retryPolicy?: RetryPolicy | undefined },
): (Past & { failed: false }) | undefined {
  const [failedAt, finishedAt] = ['failedAt', 'lastFinishedAt'].map((field) => dateOf(document[field]));
  if (failedAt === undefined || (finishedAt !== undefined && failedAt < finishedAt)) return undefined;
  const past = pastOf(document, base);
  if (past === undefined || past.failCount === 0) return past;
  const starts = Math.max(1, numberOf(document['runCount']) ?? 1);
  const inRun = ((starts - 1) % ((numberOf(document['attempts']) ?? 0) + 1)) + 1;
  return { ...past, failCount: Math.min(past.failCount, inRun) };
}

function failure(document: SourceDocument, failedAt: Date): Past & { failed: true } {
  const failReason = textOf(document['failReason']) ?? 'failed';
  const attempt = Math.max(1, numberOf(document['failCount']) ?? 1);
  return {
    failed: true,
    ...failedPast({ failReason, attempt, failedAt, startedAt: dateOf(document['lastRunAt']) }),
  };
}
