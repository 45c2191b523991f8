import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { OptionError, StoreError, type NamedItem, type Store, type Tidemill } from '../../index.js';
import { checkName, checkPayload, NEVER, parseSchedule, retryRule, type NewJob } from '../../mill/tools.js';
import type { ImportedJob, ImportedSchedule, Reading, SeparateRun } from './reading.js';

type JobReading = Extract<Reading, { kind: 'job' }>;
type ScheduleReading = Extract<Reading, { kind: 'schedule' }>;

/** What became of a record. `here`: an earlier run has stored it. */
export type Stored =
  | { readonly outcome: 'created'; readonly differs?: string }
  | { readonly outcome: 'here' }
  | {
      readonly outcome: 'left';
      readonly reason: string;
      readonly detail?: string;
      /** Later passes of this process do not try it again. */
      readonly isFinal?: true;
    };

type StoredJob = NonNullable<Awaited<ReturnType<Store['jobs']['get']>>>;

const KEYLESS = 'it shares its unique key with another imported job, and has none here';
const COVERED = 'a live job here has its name and unique key: that one stands for it';
export const CHANGED = 'it changed there after it was stored here: it is in both';
const OTHER_PAYLOAD = 'a schedule of its name and key is here with another payload: it is in both';
const SEPARATE = 'it has a run at a time of its own, and its schedule is here already: run it once by hand';
const OVERDUE = 'it has a run that is overdue, and its schedule is here already: run it once by hand';

/** When a schedule begins that is not paused yet. */
const FAR = new Date('2090-01-01T00:00:00.000Z');

/** Writes records of another library into the store. Every write may be repeated: ids follow from the source's. */
export class StoreRecorder {
  readonly #mill: Tidemill;
  readonly #store: Store;
  /** The ids of all jobs of this library begin with it. */
  readonly #prefix: string;

  constructor(mill: Tidemill, store: Store, prefix: string) {
    this.#mill = mill;
    this.#store = store;
    this.#prefix = prefix;
  }

  /** Why a record cannot be stored; undefined if it can. Writes nothing. */
  refusal(reading: JobReading | ScheduleReading): Stored | undefined {
    const { payload, maxPayloadBytes } = this.#store;
    const attempt = (reason: string, check: () => unknown): Stored | undefined => {
      try {
        check();
        return undefined;
      } catch (error) {
        if (!(error instanceof OptionError)) throw error;
        return { outcome: 'left', reason, detail: error.message.replace(/^import: /u, '') };
      }
    };
    const where = 'import';
    const { data, retryPolicy } = reading.kind === 'job' ? reading.job : reading.schedule;
    const checkText = (option: string, text: string | undefined): void => {
      if (text === undefined) return;
      const fault = payload.refusesText?.(checkName(where, option, text)) ?? null;
      if (fault !== null) throw new OptionError(`${where}: ${option} ${fault}.`);
    };
    return (
      attempt('its name or unique key cannot be stored here', () => {
        if (reading.kind === 'job') checkText('id', reading.job.id);
        checkText('name', reading.name);
        checkText('uniqueKey', reading.kind === 'job' ? reading.job.uniqueKey : reading.schedule.uniqueKey);
      }) ??
      attempt('its payload has a value that this store cannot hold', () =>
        checkPayload(where, 'data', data, payload, maxPayloadBytes),
      ) ??
      attempt('its retries are not valid here', () => retryRule(where, retryPolicy)) ??
      (reading.kind === 'schedule'
        ? attempt('its cron text or zone is not valid here, or has no run left', () =>
            firstRun(reading.schedule),
          )
        : undefined)
    );
  }

  /** Stores jobs in one write, or in two: those with failures behind them cannot be enqueued. */
  async jobs(readings: readonly JobReading[]): Promise<readonly Stored[]> {
    const found = new Map<JobReading, Stored>();
    const plain = readings.filter(({ job }) => job.past === undefined);
    const past = readings.filter(({ job }) => job.past !== undefined);
    const shared: JobReading[] = [];
    const note = (asked: readonly JobReading[], answers: readonly Answer[]): void => {
      for (const [at, reading] of asked.entries()) {
        const stored = this.#outcome(reading, answers[at] as Answer);
        if (stored === 'shared') shared.push(reading);
        else found.set(reading, stored);
      }
    };
    if (plain.length > 0) note(plain, await this.#enqueue(plain.map(({ job }) => itemOf(job))));
    if (past.length > 0) note(past, await this.#insert(past.map(({ job }) => job)));
    for (const reading of shared) {
      const keyless = { ...reading.job, uniqueKey: undefined };
      const [answer] =
        keyless.past === undefined ? await this.#enqueue([itemOf(keyless)]) : await this.#insert([keyless]);
      found.set(reading, isNew(answer) ? { outcome: 'created', differs: KEYLESS } : { outcome: 'here' });
    }
    return readings.map((reading) => found.get(reading) as Stored);
  }

  #outcome({ job }: JobReading, answer: Answer): Stored | 'shared' {
    if (isNew(answer)) return { outcome: 'created' };
    if (answer.id === job.id) return { outcome: 'here' };
    return answer.id.startsWith(this.#prefix) ? 'shared' : { outcome: 'left', reason: COVERED };
  }

  async #enqueue(items: readonly NamedItem<never>[]): Promise<readonly Answer[]> {
    return again(() => this.#mill.enqueueMany(items));
  }

  /** By the store port: a mill enqueues no job that has failed already. */
  async #insert(jobs: readonly ImportedJob[]): Promise<readonly Answer[]> {
    const now = this.#store.clock.now();
    const answers = await again(() => this.#store.jobs.insert(jobs.map((job) => newJob(job, now))));
    return answers.map(({ job, outcome }) => ({ id: job.id, outcome }));
  }

  /**
   * Creates a schedule, unless there is one of its name and key: that may have been changed since. The run that the
   * schedule does not make comes first, so that a crash in between loses none. A paused one is created with a far beginning, paused,
   * and only then gets its times, so that it never runs in between; a repeated call finishes that.
   */
  async schedule({ schedule }: ScheduleReading): Promise<Stored> {
    const { name, uniqueKey = name, separateRun, paused = false } = schedule;
    const known = await again(() => this.#store.jobs.schedule(name, uniqueKey));
    const isBegun = known?.startAt?.getTime() === FAR.getTime();
    if (known !== undefined && !isBegun) return this.#found(schedule, known);
    if (separateRun !== undefined) await this.#run(schedule, separateRun);
    if (paused) {
      await this.#put({ ...schedule, startAt: FAR, repeatUntil: undefined });
      await again(() => this.#mill.schedules.pause(name, uniqueKey));
    }
    await this.#put(schedule);
    if (!paused && known?.paused === true) await again(() => this.#mill.schedules.resume(name, uniqueKey));
    return { outcome: 'created' };
  }

  async #run(schedule: ImportedSchedule, { id, runAt, past }: SeparateRun): Promise<void> {
    const { name, data, priority, retryPolicy, timeoutMs } = schedule;
    const job = { id, name, data, runAt, priority, retryPolicy, timeoutMs, past };
    await (past === undefined ? this.#enqueue([itemOf(job)]) : this.#insert([job]));
  }

  async #put({ name, times, data, timezone, uniqueKey = name, ...rest }: ImportedSchedule): Promise<void> {
    const { startAt, repeatUntil, priority, retryPolicy, timeoutMs: timeout } = rest;
    const options = optional({ startAt, repeatUntil, priority, retryPolicy, timeout });
    await again(() => this.#mill.schedule(times, name, data, { timezone, uniqueKey, ...options }));
  }

  async #found({ times, timezone, separateRun }: ImportedSchedule, known: StoredJob): Promise<Stored> {
    const { repeatInterval = '', timezone: zone = 'UTC', createdAt } = known;
    if (repeatInterval !== parseSchedule('import', times, timezone).text || zone !== timezone)
      return {
        outcome: 'left',
        reason: 'a schedule of its name and key is here with other times: that one stays',
        detail: `${repeatInterval} (${zone}), there ${times} (${timezone})`,
      };
    if (separateRun === undefined) return { outcome: 'here' };
    const { id, runAt, isOwnTime = false } = separateRun;
    // A run that came due after the schedule was created is one of its own.
    if ((!isOwnTime && runAt >= createdAt) || (await this.#job(id)) !== undefined) return { outcome: 'here' };
    return { outcome: 'left', reason: isOwnTime ? SEPARATE : OVERDUE, detail: runAt.toISOString() };
  }

  /**
   * Says why a record that an earlier run has stored may not be removed from the source: it is another one by now.
   * Undefined if it is the same. Some libraries change payload and time of a record under the same id.
   */
  async changed(reading: JobReading | ScheduleReading): Promise<string | undefined> {
    const { payload, maxPayloadBytes } = this.#store;
    const { data } = reading.kind === 'job' ? reading.job : reading.schedule;
    const read = checkPayload('import', 'data', data, payload, maxPayloadBytes);
    if (reading.kind === 'schedule') {
      const { name, uniqueKey = name } = reading.schedule;
      const known = await again(() => this.#store.jobs.schedule(name, uniqueKey));
      return isSamePayload(orNull(known?.data), orNull(read)) ? undefined : OTHER_PAYLOAD;
    }
    const job = await this.#job(reading.job.id);
    if (job === undefined || !isSamePayload(job.data, read)) return CHANGED;
    // What has run here is due at another time, if it is to run again; a new request there would be due after it.
    const isSame = isUntouched(reading.job, job)
      ? job.nextRunAt.getTime() === reading.job.runAt.getTime()
      : job.nextRunAt >= reading.job.runAt;
    return isSame ? undefined : CHANGED;
  }

  /** Takes a record out again that this run has stored, since the source changed it meanwhile; not if it has run. */
  async undo(reading: JobReading | ScheduleReading): Promise<boolean> {
    if (reading.kind === 'job') return this.#takeOut(reading.job);
    const { name, uniqueKey = name, separateRun } = reading.schedule;
    const known = await again(() => this.#store.jobs.schedule(name, uniqueKey));
    if (known?.status !== 'pending' || (known.history ?? []).length > 0) return false;
    if (separateRun !== undefined && !(await this.#takeOut(separateRun))) return false;
    return again(() => this.#mill.schedules.remove(name, uniqueKey));
  }

  async #takeOut(job: Pick<ImportedJob, 'id' | 'past'>): Promise<boolean> {
    const { id } = job;
    const stored = await this.#job(id);
    if (stored === undefined || !isUntouched(job, stored)) return false;
    // A worker could take a pending job before it is removed, so it is put out of reach first.
    if (stored.status === 'pending') {
      const moved = await again(() => this.#store.jobs.reschedule(id, NEVER));
      if (moved?.outcome !== 'rescheduled') return false;
      const after = await this.#job(id);
      if (after === undefined || !isUntouched(job, after)) {
        await again(() => this.#store.jobs.reschedule(id, stored.nextRunAt));
        return false;
      }
    }
    return (await again(() => this.#store.jobs.remove(id)))?.outcome === 'removed';
  }

  #job(id: string): Promise<StoredJob | undefined> {
    return again(() => this.#store.jobs.get(id));
  }
}

/** Reports whether a job is still in the state in which it was imported: no worker has tried it. */
function isUntouched({ past }: Pick<ImportedJob, 'past'>, job: StoredJob): boolean {
  return (
    job.status === (past?.failed === true ? 'failed' : 'pending') &&
    job.failCount === (past?.failCount ?? 0) &&
    (job.history ?? []).length === (past?.history ?? []).length
  );
}

const isSamePayload = (a: unknown, b: unknown): boolean => isDeepStrictEqual(comparable(a), comparable(b));

/** Binary data is of one class in the source, and may be of another in what the store returns. */
function comparable(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map(comparable);
  if (value instanceof Uint8Array) return Uint8Array.from(value);
  const { _bsontype: type, buffer } = value as { readonly _bsontype?: unknown; readonly buffer?: unknown };
  if (type === 'Binary' && buffer instanceof Uint8Array) return Uint8Array.from(buffer);
  if (Object.getPrototypeOf(value) !== Object.prototype) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, comparable(item)]));
}

/** A schedule without a payload has null here, and an empty object in some libraries. */
const orNull = (data: unknown): unknown => (isDeepStrictEqual(data ?? {}, {}) ? null : data);

interface Answer {
  readonly id: string;
  readonly outcome: string;
}

const isNew = (answer: Answer | undefined): boolean => answer?.outcome === 'created';

/** Leaves out what is undefined. */
function optional<T extends object>(options: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as never;
}

const itemOf = ({
  id,
  name,
  data,
  runAt,
  priority,
  uniqueKey,
  key,
  retryPolicy,
  timeoutMs,
}: ImportedJob): NamedItem<never> => ({
  id,
  name,
  data,
  runAt,
  ...optional({ priority, uniqueKey, key, retryPolicy, timeout: timeoutMs }),
});

function newJob(job: ImportedJob, now: number): NewJob {
  const {
    id,
    name,
    data,
    runAt,
    createdAt,
    past,
    priority = 0,
    uniqueKey,
    key,
    retryPolicy,
    timeoutMs,
  } = job;
  const { failed = false, ...rest } = past ?? { failCount: 0 };
  return {
    id,
    ownId: true,
    name,
    data,
    priority,
    status: failed ? 'failed' : 'pending',
    nextRunAt: runAt,
    createdAt: createdAt ?? new Date(now),
    past: rest,
    ...optional({ uniqueKey, limitKey: key, retryPolicy, timeoutMs }),
  };
}

/** Throws if the times are not valid, or have no run left. */
function firstRun({ times, timezone, startAt, repeatUntil }: ImportedSchedule): void {
  const from = new Date(Math.max(Date.now(), (startAt?.getTime() ?? 0) - 1));
  const next = parseSchedule('import', times, timezone, startAt).next(from);
  if (next === null || next > (repeatUntil ?? NEVER))
    throw new OptionError('import: it has no run left before its end.');
}

const TRIES = 5;
const WAIT_MS = 1_000;

/** Tries again what failed for a moment: every write here may be repeated. */
async function again<T>(write: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await write();
    } catch (error) {
      if (!(error instanceof StoreError) || !error.transient || tries === TRIES) throw error;
      await sleep(WAIT_MS * tries);
    }
  }
}
