/** The shape of a job in Monque, and what it becomes here. */
import { createHash } from 'node:crypto';
import { JobStatus, type Job as MillJob } from '../../index.js';
import { ObjectId } from './object-id.js';

export { JobStatus };

export interface Job<T = unknown> {
  /** `toHexString` of schedules, and of their failed runs, returns a text of another form. */
  readonly _id?: ObjectId;
  readonly name: string;
  readonly data: T;
  readonly status: JobStatus;
  readonly nextRunAt: Date;
  readonly failCount: number;
  readonly createdAt: Date;
  readonly updatedAt: Date;
  readonly lockedAt?: Date;
  readonly claimedBy?: string;
  readonly lastHeartbeat?: Date;
  readonly heartbeatInterval?: number;
  readonly failReason?: string;
  readonly repeatInterval?: string;
  readonly uniqueKey?: string;
}

export type PersistedJob<T = unknown> = Job<T> & { readonly _id: ObjectId };

/** What it returns is ignored. */
export type JobHandler<T = unknown> = (job: Job<T>) => unknown;

export interface EnqueueOptions {
  readonly uniqueKey?: string;
  readonly runAt?: Date;
}

export interface ScheduleOptions {
  readonly uniqueKey?: string;
}

export interface WorkerOptions {
  /** Default: `workerConcurrency`. */
  readonly concurrency?: number;
  /** Default: false. */
  readonly replace?: boolean;
}

const has =
  (status: JobStatus) =>
  (job: Job): boolean =>
    job.status === status;

export const isPendingJob: (job: Job) => boolean = has('pending');
export const isProcessingJob: (job: Job) => boolean = has('processing');
export const isCompletedJob: (job: Job) => boolean = has('completed');
export const isFailedJob: (job: Job) => boolean = has('failed');
export const isCancelledJob: (job: Job) => boolean = has('cancelled');
export const isRecurringJob = (job: Job): boolean =>
  job.repeatInterval !== undefined && job.repeatInterval !== '';
export const isPersistedJob = <T>(job: Job<T>): job is PersistedJob<T> => job._id !== undefined;
export const isValidJobStatus = (value: unknown): value is JobStatus =>
  Object.values(JobStatus).includes(value as JobStatus);

/** The key of a schedule that was given none. */
export const OWN_KEY = 'monque:';

/**
 * The id of a record that is a text here. Its texts are that text, which all methods take; its bytes are a digest, so a
 * query of the collection needs `String(_id)`.
 */
class TextId extends ObjectId {
  readonly #text: string;

  constructor(text: string) {
    super(createHash('sha256').update(text).digest().subarray(0, 12));
    this.#text = text;
  }

  override toHexString(): string {
    return this.#text;
  }

  override toString(): string {
    return this.#text;
  }

  override toJSON(): string {
    return this.#text;
  }

  override equals(other: Parameters<ObjectId['equals']>[0]): boolean {
    return (typeof other === 'string' ? other : other?.toHexString()) === this.#text;
  }
}

/** A job as Monque shows it: what it is not is absent, and not null. */
export function toPersisted<T>(job: MillJob<T>): PersistedJob<T> {
  const { id, name, data, status, nextRunAt, failCount, createdAt, updatedAt, lockedAt, uniqueKey } = job;
  const { claimedBy, lastHeartbeat, heartbeatInterval, failReason, repeatInterval } = job;
  return {
    _id: ObjectId.isValid(id) ? new ObjectId(id) : new TextId(id),
    name,
    data,
    status,
    nextRunAt,
    failCount,
    createdAt,
    updatedAt,
    ...(lockedAt === null ? {} : { lockedAt }),
    ...(claimedBy === undefined ? {} : { claimedBy }),
    ...(lastHeartbeat === undefined ? {} : { lastHeartbeat }),
    ...(heartbeatInterval === undefined ? {} : { heartbeatInterval }),
    ...(failReason === undefined ? {} : { failReason }),
    ...(repeatInterval === undefined ? {} : { repeatInterval }),
    ...(uniqueKey === undefined || uniqueKey.startsWith(OWN_KEY) ? {} : { uniqueKey }),
  };
}
