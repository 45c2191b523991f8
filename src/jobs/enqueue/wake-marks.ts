import type { Clock } from '../../core/clock.js';
import type { NewJob } from '../../store/port.js';

/**
 * Wake-ups per second and name that one process may request after its burst: under a flood of jobs, the instances that
 * run them are awake anyway.
 */
const WAKES_PER_SECOND = 50;
const WAKE_BURST = 20;
/** Beyond this many names the limits are forgotten, so that names made from data do not fill the memory. */
const MOST_LIMITED = 1_000;
/** If one call stores jobs of more names than this, it wakes all instances. */
const MOST_NAMED = 20;

interface Limit {
  /** How many wake-ups are left of the burst, as of `at`. */
  readonly left: number;
  /** Monotonic: setting the wall clock back must not suppress wake-ups. */
  readonly at: number;
  /** How many due jobs were stored without a wake-up since the last one. */
  readonly unsaid: number;
}

/** Marks the jobs for which the store wakes waiting instances. */
export class WakeMarks {
  readonly #limits = new Map<string, Limit>();

  /** Marks the due job of each name that comes first by priority and due time: instances may claim it directly. */
  mark(jobs: readonly NewJob[], clock: Clock): readonly NewJob[] {
    const firsts = firstDue(jobs, clock.now());
    const isMany = firsts.length > MOST_NAMED;
    const marks = new Map<NewJob, number | undefined>(
      firsts
        .slice(0, isMany ? 1 : MOST_NAMED)
        .map(({ job, count }) => [job, isMany ? 0 : this.#wakeFor(job.name, count, clock.monotonic())]),
    );
    return jobs.map((job) => {
      const wake = marks.get(job);
      return wake === undefined ? job : { ...job, wake };
    });
  }

  /** For how many jobs to wake instances; undefined if the limit is reached: then the next wake-up counts these, too. */
  #wakeFor(name: string, count: number, now: number): number | undefined {
    const { left, at, unsaid } = this.#limits.get(name) ?? { left: WAKE_BURST, at: now, unsaid: 0 };
    const wakes = Math.min(WAKE_BURST, left + ((now - at) / 1_000) * WAKES_PER_SECOND);
    if (this.#limits.size >= MOST_LIMITED) this.#limits.clear();
    const may = wakes >= 1;
    this.#limits.set(name, { left: may ? wakes - 1 : wakes, at: now, unsaid: may ? 0 : unsaid + count });
    return may ? unsaid + count : undefined;
  }
}

/** Of each name, the due job that comes first, and how many are due. */
function firstDue(jobs: readonly NewJob[], now: number): { job: NewJob; count: number }[] {
  const ahead = (a: NewJob, b: NewJob): boolean =>
    a.priority === b.priority ? a.nextRunAt < b.nextRunAt : a.priority > b.priority;
  const firsts = new Map<string, { job: NewJob; count: number }>();
  for (const job of jobs) {
    if (job.nextRunAt.getTime() > now) continue;
    const { job: first, count } = firsts.get(job.name) ?? { job, count: 0 };
    firsts.set(job.name, { job: ahead(job, first) ? job : first, count: count + 1 });
  }
  return [...firsts.values()];
}
