import { TidemillError } from '../../core/errors.js';
import type { Attempt, JobRecord, MissedPolicy } from '../../core/records/job.js';
import { checkInteger, checkKeys, checkText } from '../../core/options.js';
import type { Store } from '../../store/port.js';
import { preview, slotAfter } from '../../time/recurrence.js';
import { recurrenceOf } from '../recurrence.js';

/** A recurring job, seen as a schedule. */
export interface Schedule {
  readonly id: string;
  readonly name: string;
  readonly uniqueKey: string;
  /** The cron expression, or `@every …`. */
  readonly cron: string;
  readonly timezone: string;
  readonly data: unknown;
  readonly missed: MissedPolicy;
  readonly startAt?: Date;
  readonly repeatUntil?: Date;
  readonly paused: boolean;
  /** `pending` or `processing`; `completed` or `cancelled` once the schedule has ended. */
  readonly status: JobRecord['status'];
  /** Null while the schedule is paused, and once it has ended. */
  readonly nextRunAt: Date | null;
  readonly failCount: number;
  readonly failReason?: string;
  /** The most recent attempt that has ended. */
  readonly last?: Attempt;
  /** The next run times; only with the `runs` option of `list`. */
  readonly runs?: readonly Date[];
}

function toSchedule(job: JobRecord): Schedule {
  const paused = job.paused ?? false;
  const last = job.history?.at(-1);
  const waiting = !paused && (job.status === 'pending' || job.status === 'processing');
  return {
    id: job.id,
    name: job.name,
    uniqueKey: job.uniqueKey ?? job.name,
    cron: job.repeatInterval ?? '',
    timezone: job.timezone ?? 'UTC',
    data: job.data,
    missed: job.missed ?? 'once',
    paused,
    status: job.status,
    nextRunAt: waiting ? job.nextRunAt : null,
    failCount: job.failCount,
    ...(job.startAt === undefined ? {} : { startAt: job.startAt }),
    ...(job.repeatUntil === undefined ? {} : { repeatUntil: job.repeatUntil }),
    ...(job.failReason === undefined ? {} : { failReason: job.failReason }),
    ...(last === undefined ? {} : { last }),
  };
}

/** `mill.schedules`. A schedule is identified by its job's name and its unique key, which defaults to the name. */
export class Schedules {
  readonly #store: () => Promise<Store>;
  readonly #due: () => void;

  constructor(store: () => Promise<Store>, due: () => void) {
    this.#store = store;
    this.#due = due;
  }

  /**
   * Returns the schedules of one name, or all of them. `runs` asks for the next run times of each, up to 1,000; paused
   * and ended schedules have none. Default: 0.
   */
  async list(
    name?: string,
    options: {
      /** How many of the next run times each schedule comes with, from 0 to 1,000. Default: 0. */
      readonly runs?: number;
    } = {},
  ): Promise<readonly Schedule[]> {
    if (name !== undefined) checkText('schedules.list', 'name', name);
    checkKeys('schedules.list', options, ['runs']);
    const runs = checkInteger('schedules.list', 'runs', options.runs ?? 0, 0, 1_000);
    const store = await this.#store();
    const now = new Date(store.clock.now());
    return (await store.jobs.schedules(name)).map((job) => {
      const schedule = toSchedule(job);
      return runs === 0 ? schedule : { ...schedule, runs: upcomingOf(job, schedule, now, runs) };
    });
  }

  async get(name: string, uniqueKey: string = name): Promise<Schedule | undefined> {
    checkNamed('schedules.get', name, uniqueKey);
    const job = await (await this.#store()).jobs.schedule(name, uniqueKey);
    return job && toSchedule(job);
  }

  /**
   * Deletes a schedule and returns whether there was one. A run in progress continues, but its outcome is not recorded.
   */
  async remove(name: string, uniqueKey: string = name): Promise<boolean> {
    checkNamed('schedules.remove', name, uniqueKey);
    return (await this.#store()).jobs.removeSchedule(name, uniqueKey);
  }

  /** Stops further runs until `resume`; a run in progress continues. */
  async pause(name: string, uniqueKey: string = name): Promise<Schedule> {
    checkNamed('schedules.pause', name, uniqueKey);
    const store = await this.#store();
    const job = await store.jobs.pauseSchedule(name, uniqueKey, true, new Date(0));
    return toSchedule(job ?? missing(name, uniqueKey));
  }

  /** Resumes a paused schedule with its first run time after now. */
  async resume(name: string, uniqueKey: string = name): Promise<Schedule> {
    checkNamed('schedules.resume', name, uniqueKey);
    const store = await this.#store();
    const current = (await store.jobs.schedule(name, uniqueKey)) ?? missing(name, uniqueKey);
    const now = new Date(store.clock.now());
    const recurrence = recurrenceOf(current);
    const next = recurrence && slotAfter(recurrence, now);
    if (next === null) ended(name, uniqueKey);
    const job = await store.jobs.pauseSchedule(name, uniqueKey, false, next);
    this.#due();
    return toSchedule(job ?? missing(name, uniqueKey));
  }

  /**
   * Starts one run as soon as possible, even if the schedule is paused. Its regular times stay as they are. `running`:
   * a run is already in progress, and no other is started.
   */
  async runNow(
    name: string,
    uniqueKey: string = name,
  ): Promise<{ readonly outcome: 'due' | 'running'; readonly schedule: Schedule }> {
    checkNamed('schedules.runNow', name, uniqueKey);
    const store = await this.#store();
    const now = new Date(store.clock.now());
    const answer = await store.jobs.runScheduleNow(name, uniqueKey, now);
    this.#due();
    const { outcome, job } = answer ?? missing(name, uniqueKey);
    return { outcome, schedule: toSchedule(job) };
  }

  /** Returns the next run times of one schedule, or of all schedules together. `count` defaults to 10. */
  next(name: string, count?: number, uniqueKey?: string): Promise<readonly Date[]>;
  next(count?: number): Promise<readonly UpcomingRun[]>;
  async next(
    target: string | number = 10,
    count: number | undefined = 10,
    uniqueKey?: string,
  ): Promise<readonly Date[] | readonly UpcomingRun[]> {
    const store = await this.#store();
    const now = new Date(store.clock.now());
    if (typeof target === 'number') return upcoming(await store.jobs.schedules(), now, checkCount(target));
    const key = uniqueKey ?? target;
    checkNamed('schedules.next', target, key);
    const job = (await store.jobs.schedule(target, key)) ?? missing(target, key);
    const recurrence = recurrenceOf(job);
    return recurrence === null ? [] : preview(recurrence, now, checkCount(count));
  }
}

export interface UpcomingRun {
  readonly name: string;
  readonly uniqueKey: string;
  readonly at: Date;
}

function checkNamed(where: string, name: unknown, uniqueKey: unknown): void {
  checkText(where, 'name', name);
  checkText(where, 'uniqueKey', uniqueKey);
}

const checkCount = (count: number): number => checkInteger('schedules.next', 'count', count, 1, 1_000);

function upcomingOf(job: JobRecord, { nextRunAt }: Schedule, now: Date, count: number): readonly Date[] {
  const recurrence = nextRunAt === null ? null : recurrenceOf(job);
  if (recurrence === null) return [];
  const times = preview(recurrence, now, count);
  // A retry, a deferral or a reschedule may put the next run before the next time of the cron text.
  const [first] = times;
  return nextRunAt !== null && nextRunAt > now && (first === undefined || nextRunAt < first)
    ? [nextRunAt, ...times].slice(0, count)
    : times;
}

function upcoming(jobs: readonly JobRecord[], now: Date, count: number): UpcomingRun[] {
  const runs = jobs
    .filter((job) => toSchedule(job).nextRunAt !== null)
    .flatMap((job) => {
      const recurrence = recurrenceOf(job);
      const times = recurrence === null ? [] : preview(recurrence, now, count);
      return times.map((at) => ({ name: job.name, uniqueKey: job.uniqueKey ?? job.name, at }));
    });
  return runs.sort((a, b) => a.at.getTime() - b.at.getTime()).slice(0, count);
}

function missing(name: string, key: string): never {
  throw new TidemillError(
    'SCHEDULE_MISSING',
    `There is no live schedule "${name}" with the key "${key}"; schedules.list() shows them.`,
  );
}

function ended(name: string, key: string): never {
  throw new TidemillError(
    'SCHEDULE_ENDED',
    `The schedule "${name}" with the key "${key}" has no run left before its repeatUntil; call schedule() again.`,
  );
}
