import { setTimeout as sleep } from 'node:timers/promises';
import { TidemillError } from '../core/errors.js';
import { checkKeys } from '../core/options.js';
import type { Job, MillEvents, Tidemill } from '../index.js';
import { toMs, type Duration } from '../time/duration.js';

/** A mill on any store. */
export interface AnyMill extends Pick<Tidemill, 'jobs' | 'names' | 'started' | 'start' | 'stop'> {
  on<K extends keyof MillEvents>(event: K, listener: (payload: MillEvents[K]) => unknown): unknown;
  off<K extends keyof MillEvents>(event: K, listener: (payload: MillEvents[K]) => unknown): unknown;
}

/** What became of the work that ran. */
export interface Drained {
  /** Jobs and reactive tasks that completed; a recurring job counts once per run. */
  readonly completed: number;
  /** Jobs and reactive tasks that have no attempt left. */
  readonly failed: number;
  /** Failed attempts that will be retried. */
  readonly retried: number;
}

export interface DrainOptions {
  /** How long to wait, in real time, before the call rejects with `TIMEOUT`. Default: '5s'. */
  readonly timeout?: Duration;
}

/** What `untilIdle` needs to know of a mill besides its jobs; a `TestMill` knows more than others. */
export interface Surroundings {
  readonly now: () => number;
  /** Looks at what holds pending jobs up, such as a pause. The answer is true for those that are not waited for. */
  readonly resting: () => Promise<(job: Job) => boolean>;
  /** True for jobs that are waited for. */
  readonly admits: (id: string) => boolean;
  /** Reactive tasks that run or are due, and changes that are not planned yet, in words. */
  readonly tasks: () => readonly string[];
  /** Waits a moment between two checks. */
  readonly pass: () => Promise<void>;
}

export const LOOK_EVERY_MS = 2;
const SKEW_MS = 250;
export const ORDINARY: Surroundings = {
  // By the clock of its store, a job that was enqueued just now may be due a moment from now.
  now: () => Date.now() + SKEW_MS,
  resting: () => Promise.resolve(() => false),
  admits: () => true,
  tasks: () => [],
  pass: () => sleep(LOOK_EVERY_MS),
};
const NAMED_AT_MOST = 5;

export function timeoutOf(where: string, options: DrainOptions, keys: readonly string[] = []): number {
  checkKeys(where, options, ['timeout', ...keys]);
  return toMs(where, 'timeout', options.timeout ?? '5s');
}

/** Runs `work` and counts the outcomes of jobs and reactive tasks meanwhile. */
export async function tallied(mill: AnyMill, work: () => Promise<void>): Promise<Drained> {
  const tally = { completed: 0, failed: 0, retried: 0 };
  const done = (): void => void (tally.completed += 1);
  const failed = ({ willRetry }: Pick<MillEvents['job:fail'], 'willRetry'>): void =>
    void (tally[willRetry ? 'retried' : 'failed'] += 1);
  mill.on('job:complete', done);
  mill.on('task:complete', done);
  mill.on('job:fail', failed);
  mill.on('task:fail', failed);
  try {
    await work();
    return { ...tally };
  } finally {
    mill.off('job:complete', done);
    mill.off('task:complete', done);
    mill.off('job:fail', failed);
    mill.off('task:fail', failed);
  }
}

/** Resolves when no work of this mill runs, or is due and may run. Checks twice: work can move between two queries. */
export async function untilIdle(
  mill: AnyMill,
  timeoutMs: number,
  surroundings: Surroundings = ORDINARY,
): Promise<void> {
  const deadline = performance.now() + timeoutMs;
  for (let quiet = 0; quiet < 2;) {
    const left = await unfinished(mill, surroundings);
    quiet = left.length === 0 ? quiet + 1 : 0;
    if (left.length > 0 && performance.now() > deadline) throw tooLong(left, timeoutMs);
    if (quiet < 2) await surroundings.pass();
  }
}

/** What runs, or may run now. One query for both states, so that a job claimed meanwhile is not missed. */
async function unfinished(mill: AnyMill, surroundings: Surroundings): Promise<readonly string[]> {
  const { now, resting, admits, tasks } = surroundings;
  if (mill.names.length === 0) return tasks();
  const isResting = await resting();
  const { items } = await mill.jobs.find(
    { name: mill.names, status: ['pending', 'processing'], nextRunAt: { to: new Date(now()) } },
    { limit: 1_000, sort: { nextRunAt: 1 } },
  );
  const jobs = items.filter((job) => admits(job.id) && (job.status === 'processing' || !isResting(job)));
  return [...jobs.map(({ name, id, status }) => `${name} ${id} (${status})`), ...tasks()];
}

function tooLong(left: readonly string[], timeoutMs: number): TidemillError {
  const named = left.slice(0, NAMED_AT_MOST);
  const rest = left.length > named.length ? `, and ${String(left.length - named.length)} more` : '';
  return new TidemillError(
    'TIMEOUT',
    `drain: after ${String(timeoutMs)} ms of real time this has not ended: ${named.join(', ')}${rest}. ` +
      'Does a handler wait for something that the test has to do, or for the clock to be moved?',
  );
}
