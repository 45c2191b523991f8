import type { Clock } from '../core/clock.js';
import { OptionError, StoreError } from '../core/errors.js';
import type { Meter } from '../core/meter.js';
import type { TraceContext, Tracer } from '../core/tracer.js';
import { SCHEDULE_PREFIX, toJob, type Job, type JobRecord, type MissedPolicy } from '../core/records/job.js';
import { checkDate, checkKeys, checkName, checkOneOf, show } from '../core/options.js';
import { checkPayload } from '../core/payload.js';
import type { Reservation } from '../engine/claim/reservation.js';
import type { Inserted, NewJob, Store } from '../store/port.js';
import { parseCron } from '../time/cron.js';
import { toMs, type Duration } from '../time/duration.js';
import { slotAfter } from '../time/recurrence.js';
import { retryRule, type RetryPolicy } from '../time/retry.js';
import { checkPriority, isDefinition, validated, type JobDefinition } from './definition.js';
import { InsertBatcher } from './insert-batcher.js';
import type { Registry } from './registry.js';

export interface EnqueueOptions<Tx = unknown> {
  /** Your own id: a repeated call with it is safe, and answers the first job. Default: made by the store. */
  readonly id?: string;
  /** When to run it. Default: now. */
  readonly runAt?: Date;
  /** How long to wait before running it; instead of `runAt`. */
  readonly delay?: Duration;
  /** From -10 to 10; higher first within the name. Default: the definition's, else 0. */
  readonly priority?: number;
  /** At most one job of this name and key is pending or processing at any time. */
  readonly uniqueKey?: string;
  /** Default: the definition's. */
  readonly retryPolicy?: RetryPolicy;
  /** Default: the definition's. */
  readonly timeout?: Duration;
  /** The store's own handle: the job exists if and only if that transaction commits. */
  readonly transaction?: Tx;
  /** MongoDB's word for `transaction`. */
  readonly session?: Tx;
}

export type EnqueuedJob<T = unknown> = Job<T> & { readonly outcome: 'created' | 'existing' };

export interface ScheduleOptions {
  /** IANA zone that the cron text is read in. Default: 'UTC'. */
  readonly timezone?: string;
  /** Which schedule of this name it is. Default: the name. */
  readonly uniqueKey?: string;
  /** No run before this; a run exactly then counts. Default: none. */
  readonly startAt?: Date;
  /** No run after this; a run exactly then counts. Default: none. */
  readonly repeatUntil?: Date;
  /** What to do with runs that nobody started in time. Default: 'once'. */
  readonly missed?: MissedPolicy;
  readonly priority?: number;
  readonly retryPolicy?: RetryPolicy;
  readonly timeout?: Duration;
}

const ENQUEUE_KEYS = [
  'id',
  'runAt',
  'delay',
  'priority',
  'uniqueKey',
  'retryPolicy',
  'timeout',
  'transaction',
  'session',
];
const SCHEDULE_KEYS = [
  'timezone',
  'uniqueKey',
  'startAt',
  'repeatUntil',
  'missed',
  'priority',
  'retryPolicy',
  'timeout',
];

/** Wake-ups per second that one process may ask for once its burst is used up: a flood wakes nobody who is not awake. */
const WAKES_PER_SECOND = 50;
const WAKE_BURST = 20;

export type Target<T = unknown> = string | JobDefinition<T>;

/** One job of many. */
interface Asked<Tx> {
  readonly target: Target;
  readonly data: unknown;
  readonly options: EnqueueOptions<Tx>;
}

/** What a span is called by; what is no name is refused later on. */
const nameOf = (target: Target): string =>
  typeof target === 'string' ? target : String((target as JobDefinition | undefined)?.name);

/** The instance that works in this process, if there is one. */
export interface Local {
  /** Told of work that may start at once. */
  readonly due: () => void;
  readonly reserve: (name: string, id: string) => Reservation<JobRecord> | undefined;
  /** Told of jobs that are stored for good; what it answers is what the caller gets. Undefined: nobody cares. */
  readonly stored: (jobs: readonly EnqueuedJob[]) => Promise<readonly EnqueuedJob[]> | undefined;
  readonly meter: Meter;
  readonly tracer: () => Tracer | undefined;
}

/** Where work is asked for: checks everything first, then writes once. */
export class Enqueuer<Tx> {
  readonly #store: () => Promise<Store<Tx>>;
  readonly #registry: Registry;
  readonly #local: Local;
  readonly #inserts = new InsertBatcher<Tx>();
  #wakes = WAKE_BURST;
  #wokeAt = -Infinity;

  constructor(store: () => Promise<Store<Tx>>, registry: Registry, local: Local) {
    this.#store = store;
    this.#registry = registry;
    this.#local = local;
  }

  async enqueue(target: Target, data: unknown, options: EnqueueOptions<Tx> = {}): Promise<EnqueuedJob> {
    checkKeys('enqueue', options, ENQUEUE_KEYS);
    const store = await this.#store();
    const ask = (trace?: TraceContext): Promise<EnqueuedJob> =>
      this.#ask(store, target, data, options, trace);
    return this.#local.tracer()?.enqueue([nameOf(target)], ask) ?? ask();
  }

  async #ask(
    store: Store<Tx>,
    target: Target,
    data: unknown,
    options: EnqueueOptions<Tx>,
    trace: TraceContext | undefined,
  ): Promise<EnqueuedJob> {
    const transaction = transactionOf('enqueue', store, [{ options }]);
    const now = store.clock.now();
    const asking = await this.#newJob('enqueue', store, target, data, options, now);
    const job = trace === undefined ? asking : { ...asking, trace };
    if (transaction !== undefined) {
      const [asked = job] = this.#withWake([job], store.clock);
      return this.#accepted((await store.jobs.insert([asked], transaction))[0] as Inserted);
    }
    const inserted = this.#accepted(await this.#insert(store, job, now));
    return (await this.#local.stored([inserted]))?.[0] ?? inserted;
  }

  async #insert(store: Store<Tx>, job: NewJob & { readonly id: string }, now: number): Promise<Inserted> {
    const mayStart = job.nextRunAt.getTime() <= now;
    const reservation = mayStart ? this.#local.reserve(job.name, job.id) : undefined;
    if (reservation !== undefined) return this.#insertClaimed(store, job, reservation);
    const [asked = job] = this.#withWake([job], store.clock);
    const inserted = await this.#inserts.insert(store, asked);
    this.#local.due();
    return inserted;
  }

  /** Whether a caller's transaction commits, nobody learns here: what it asked for is counted all the same. */
  #accepted(inserted: Inserted): EnqueuedJob {
    if (inserted.outcome === 'created') this.#local.meter.enqueued(inserted.job.name, 1);
    return answer(inserted);
  }

  /** A slot of this process is free and nothing waits for it: the job is stored as claimed, which saves the claim. */
  async #insertClaimed(
    store: Store<Tx>,
    job: NewJob,
    reservation: Reservation<JobRecord>,
  ): Promise<Inserted> {
    const { claim } = reservation;
    let reserved: Reservation<JobRecord> | undefined = reservation;
    const giveBack = (stored: 'not' | 'unknown'): void => {
      reserved?.cancel(stored);
      reserved = undefined;
    };
    try {
      // A slot is not kept for a job that has to wait for an open transaction.
      const inserted = await this.#inserts.insert(store, { ...job, claim }, () => giveBack('not'));
      if (inserted.job.leaseToken === claim.token) reservation.fulfil(inserted.job);
      else giveBack('not');
      return inserted.outcome === 'created' ? { ...inserted, job: asAsked(inserted.job) } : inserted;
    } catch (error) {
      giveBack(error instanceof StoreError && error.outcomeUnknown ? 'unknown' : 'not');
      throw error;
    }
  }

  async enqueueMany(items: readonly Asked<Tx>[]): Promise<EnqueuedJob[]> {
    const store = await this.#store();
    const names = items.map(({ target }) => nameOf(target));
    const ask = (trace?: TraceContext): Promise<EnqueuedJob[]> => this.#askMany(store, items, trace);
    return this.#local.tracer()?.enqueue(names, ask) ?? ask();
  }

  async #askMany(
    store: Store<Tx>,
    items: readonly Asked<Tx>[],
    trace: TraceContext | undefined,
  ): Promise<EnqueuedJob[]> {
    const where = 'enqueueMany';
    const transaction = transactionOf(where, store, items);
    const now = store.clock.now();
    const jobs: NewJob[] = [];
    for (const [index, { target, data, options }] of items.entries()) {
      const job = await this.#newJob(`${where}[${String(index)}]`, store, target, data, options, now);
      jobs.push(trace === undefined ? job : { ...job, trace });
    }
    if (jobs.length === 0) return [];
    const answers = await store.jobs.insert(this.#withWake(jobs, store.clock), transaction);
    const inserted = answers.map((one) => this.#accepted(one));
    if (transaction !== undefined) return inserted;
    this.#local.due();
    return [...((await this.#local.stored(inserted)) ?? inserted)];
  }

  /** The first in line of the jobs that are due asks the store to wake waiting instances, which may take it directly. */
  #withWake(jobs: readonly NewJob[], clock: Clock): readonly NewJob[] {
    const now = clock.now();
    const ahead = (a: NewJob, b: NewJob): boolean =>
      a.priority === b.priority ? a.nextRunAt < b.nextRunAt : a.priority > b.priority;
    let first: NewJob | undefined;
    for (const job of jobs) {
      if (job.nextRunAt.getTime() <= now && (first === undefined || ahead(job, first))) first = job;
    }
    if (first === undefined || !this.#mayWake(clock.monotonic())) return jobs;
    return jobs.map((job) => (job === first ? { ...job, wake: true } : job));
  }

  async #newJob(
    where: string,
    store: Store<Tx>,
    target: Target,
    data: unknown,
    options: EnqueueOptions<Tx>,
    now: number,
  ): Promise<NewJob & { readonly id: string }> {
    const { name, schema } = this.#resolve(where, target);
    checkKeys(where, options, ENQUEUE_KEYS);
    const payload = await payloadOf(where, store, schema, data);
    return {
      name,
      data: payload,
      status: 'pending',
      priority: this.#priority(where, name, options.priority),
      nextRunAt: dueAt(where, options, now),
      createdAt: new Date(now),
      ...idOf(where, store, options.id),
      ...(options.uniqueKey === undefined
        ? {}
        : { uniqueKey: checkName(where, 'uniqueKey', options.uniqueKey) }),
      ...this.#limits(where, name, options),
    };
  }

  #resolve(where: string, target: Target): { name: string; schema?: JobDefinition['schema'] } {
    if (typeof target === 'string') {
      const name = checkName(where, 'name', target);
      const schema = this.#registry.workers.get(name)?.definition.schema;
      return { name, ...(schema === undefined ? {} : { schema }) };
    }
    if (!isDefinition(target)) {
      throw new OptionError(
        `${where}: expected a job's name or a definition made by defineJob, got ${show(target)}.`,
      );
    }
    if (this.#registry.options(target.name) === undefined) this.#registry.define(target);
    return { name: target.name, ...(target.schema === undefined ? {} : { schema: target.schema }) };
  }

  #priority(where: string, name: string, given: number | undefined): number {
    return given === undefined ? (this.#registry.options(name)?.priority ?? 0) : checkPriority(where, given);
  }

  /** Kept on the job: what was given here, or what its definition said when it was asked for. */
  #limits(
    where: string,
    name: string,
    given: { readonly retryPolicy?: RetryPolicy; readonly timeout?: Duration },
  ): { retryPolicy?: unknown; timeoutMs?: number } {
    if (given.retryPolicy !== undefined) retryRule(where, given.retryPolicy);
    const defined = this.#registry.workers.has(name) ? undefined : this.#registry.options(name);
    const retryPolicy = given.retryPolicy ?? defined?.retryPolicy;
    const timeoutMs =
      given.timeout === undefined ? defined?.timeoutMs : toMs(where, 'timeout', given.timeout, 1);
    return {
      ...(retryPolicy === undefined ? {} : { retryPolicy }),
      ...(timeoutMs === undefined ? {} : { timeoutMs }),
    };
  }

  /** By the monotonic clock: a wall clock that is set back must not keep others asleep. */
  #mayWake(now: number): boolean {
    this.#wakes = Math.min(WAKE_BURST, this.#wakes + ((now - this.#wokeAt) / 1_000) * WAKES_PER_SECOND);
    this.#wokeAt = now;
    if (this.#wakes < 1) return false;
    this.#wakes -= 1;
    return true;
  }

  async schedule(cron: string, target: Target, data: unknown, options: ScheduleOptions = {}): Promise<Job> {
    const where = 'schedule';
    const store = await this.#store();
    const { name, schema } = this.#resolve(where, target);
    checkKeys(where, options, SCHEDULE_KEYS);
    const { timezone = 'UTC', uniqueKey = name, missed = 'once', startAt, repeatUntil } = options;
    const times = parseCron(where, cron, timezone);
    const now = new Date(store.clock.now());
    const bounds = {
      ...(startAt === undefined ? {} : { startAt: checkDate(where, 'startAt', startAt) }),
      ...(repeatUntil === undefined ? {} : { repeatUntil: checkDate(where, 'repeatUntil', repeatUntil) }),
    };
    const policy = checkOneOf(where, 'missed', missed, ['once', 'skip', 'all'] as const);
    const firstRunAt = slotAfter({ cron: times, missed: policy, ...bounds }, now);
    if (firstRunAt === null) {
      throw new OptionError(
        `${where}: ${show(cron)} has no run between ${show(startAt ?? now)} and repeatUntil ${show(repeatUntil)}.`,
      );
    }
    const payload = await payloadOf(where, store, schema, data);
    const job = await store.jobs.putSchedule({
      name,
      key: checkName(where, 'uniqueKey', uniqueKey),
      data: payload,
      cron: times.text,
      timezone: times.timezone,
      missed: policy,
      priority: this.#priority(where, name, options.priority),
      firstRunAt,
      now,
      ...bounds,
      ...this.#limits(where, name, options),
    });
    this.#local.due();
    return toJob(job);
  }
}

/** As it will come back, if the store and the schema take it. */
async function payloadOf(
  where: string,
  { payload, maxPayloadBytes }: Store,
  schema: JobDefinition['schema'],
  data: unknown,
): Promise<unknown> {
  const given = data === undefined ? {} : data;
  const checked = checkPayload(where, 'data', given, payload, maxPayloadBytes);
  await validated(where, schema, checked);
  return checked;
}

function idOf<Tx>(where: string, store: Store<Tx>, given: unknown): { id: string; ownId?: true } {
  if (given === undefined) return { id: store.jobs.newId() };
  const id = checkName(where, 'id', given);
  if (!id.startsWith(SCHEDULE_PREFIX)) return { id, ownId: true };
  throw new OptionError(
    `${where}: id must not begin with "${SCHEDULE_PREFIX}", which names schedules; got ${show(id)}.`,
  );
}

function dueAt(where: string, { runAt, delay }: EnqueueOptions, now: number): Date {
  if (runAt !== undefined && delay !== undefined)
    throw new OptionError(`${where}: give either runAt or delay, not both.`);
  if (runAt !== undefined) return checkDate(where, 'runAt', runAt);
  return new Date(now + (delay === undefined ? 0 : toMs(where, 'delay', delay)));
}

/** One call is one write, so it can only be part of one transaction. */
function transactionOf<Tx>(
  where: string,
  store: Store<Tx>,
  items: readonly { options: EnqueueOptions<Tx> }[],
): Tx | undefined {
  const handles = new Set(items.map(({ options }) => options.transaction ?? options.session));
  if (handles.size > 1) throw new OptionError(`${where}: all items must have the same transaction.`);
  const [handle] = handles;
  if (handle === undefined) return undefined;
  if (store.isTransaction(handle)) return handle;
  throw new OptionError(
    `${where}: transaction must be a handle of the ${store.kind} store, got ${show(handle)}.`,
  );
}

/** As it was accepted: that it is about to run here is no news to who asked for it. */
function asAsked(job: JobRecord): JobRecord {
  const { claimedBy, lastHeartbeat, heartbeatInterval, leaseToken, ...asked } = job;
  return { ...asked, status: 'pending', lockedAt: null };
}

const answer = ({ job, outcome }: Inserted): EnqueuedJob => ({ ...toJob(job), outcome });
