import { hasEnded, toJob, type Job, type JobRecord } from '../../core/records/job.js';

/**
 * What happened to a job. `current`: nothing yet; the job as it is when the watch begins. `retry`: it is pending again,
 * after a failed attempt, a `defer`, a hand-back or a manual retry.
 */
export type ChangeKind =
  'current' | 'created' | 'started' | 'progress' | 'retry' | 'completed' | 'failed' | 'cancelled';

/** A job, and what happened to it last. Changes in between may be left out. */
export interface JobChange<T = unknown> {
  readonly job: Job<T>;
  readonly change: ChangeKind;
}

/** What a watcher remembers of a job. */
interface Seen {
  readonly state: string;
  readonly status: JobRecord['status'];
  readonly progress: string;
}

const progressOf = ({ progress }: JobRecord): string =>
  progress === undefined ? '' : JSON.stringify(progress);

/** Heartbeats, log lines and cancel requests are no changes of state. */
function seenOf(job: JobRecord): Seen {
  const { status, leaseToken, failCount, finishedAt, history } = job;
  const run =
    job.repeatInterval === undefined ? '' : `${String(history?.length)} ${String(job.scheduledFor)}`;
  const state = [status, leaseToken, failCount, finishedAt?.getTime(), run].join('|');
  return { state, status, progress: progressOf(job) };
}

/** A pending recurring job has had a run, or waits for a retry of it. */
function afterRun(job: JobRecord): ChangeKind {
  if (job.failCount > 0) return 'retry';
  const last = job.history?.at(-1)?.status;
  if (last === 'completed' || last === 'skipped') return 'completed';
  return last === 'failed' || last === 'crashed' ? 'failed' : 'retry';
}

/** Jobs that a watcher remembers. Of one that it has forgotten, a state may be told twice. */
const MOST_REMEMBERED = 10_000;

/** Tells what happened to jobs, by how they were when it saw them last. */
export class Changes {
  readonly #seen = new Map<string, Seen>();
  readonly #since: number;

  /** `since`: what happened before is not told. */
  constructor(since: number) {
    this.#since = since;
  }

  /** Remembers a job as it is, without telling. */
  note(job: JobRecord): void {
    this.#remember(job.id, seenOf(job));
  }

  forget(id: string): void {
    this.#seen.delete(id);
  }

  /** Returns what happened to the job since it was last seen; undefined if nothing did. */
  of(job: JobRecord): JobChange | undefined {
    const before = this.#seen.get(job.id);
    const now = seenOf(job);
    this.#remember(job.id, now);
    const change = before === undefined ? this.#first(job) : changeOf(job, before, now);
    return change && { job: toJob(job), change };
  }

  /** A job that was not seen before: the times that the store wrote tell what is new. */
  #first(job: JobRecord): ChangeKind | undefined {
    const isNew = (at: Date | null | undefined): boolean => (at?.getTime() ?? -Infinity) >= this.#since;
    // `finishedAt` is as the process that ran it read the time, `updatedAt` is of the server.
    if (hasEnded(job)) return isNew(job.updatedAt) ? (job.status as ChangeKind) : undefined;
    if (job.status === 'processing') {
      if (isNew(job.lockedAt)) return 'started';
      return job.progress === undefined ? undefined : 'progress';
    }
    if (isNew(job.createdAt)) return job.failCount > 0 ? 'retry' : 'created';
    if (!isNew(job.updatedAt)) return undefined;
    return job.repeatInterval === undefined ? 'retry' : afterRun(job);
  }

  #remember(id: string, seen: Seen): void {
    this.#seen.delete(id);
    this.#seen.set(id, seen);
    if (this.#seen.size <= MOST_REMEMBERED) return;
    for (const oldest of this.#seen.keys()) {
      this.#seen.delete(oldest);
      return;
    }
  }
}

function changeOf(job: JobRecord, before: Seen, now: Seen): ChangeKind | undefined {
  if (before.state === now.state)
    return job.status === 'processing' && before.progress !== now.progress ? 'progress' : undefined;
  if (hasEnded(job)) return job.status as ChangeKind;
  if (job.status === 'processing') return 'started';
  return job.repeatInterval === undefined ? 'retry' : afterRun(job);
}
