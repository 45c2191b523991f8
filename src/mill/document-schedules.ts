import { OptionError } from '../core/errors.js';
import type { Logger } from '../core/logger.js';
import type { Meter } from '../core/meter.js';
import type { Tracer } from '../core/tracer.js';
import { checkKeys, checkText, show } from '../core/options.js';
import { SCHEDULE_KEYS, type ScheduleOptions } from '../documents/options.js';
import type { ScheduleGate } from '../documents/run/schedule-gate.js';
import { Scheduler } from '../documents/scheduler.js';
import { definedLimits, type BreakerOptions, type WorkLimits } from '../engine/limits/options.js';
import type { MillSettings } from './options.js';
import type { DocumentJobStore, DocumentPlace } from '../store/documents.js';
import { capFor, EVERYTHING, type Depth, type ScopeLimits, type Store } from '../store/port.js';

/** Options of `mill.documents`: where your documents are, and how each runs when its own schedule is due. */
export interface DocumentOptions<Doc = Record<string, unknown>> extends ScheduleOptions<Doc>, DocumentPlace {
  /** Limits of this schedule in the whole cluster: how much runs at once, and starts per time. Default: none. */
  readonly limits?: WorkLimits;
  /** Stops all starts of this schedule in the cluster after too many failed runs. Default: none. */
  readonly breaker?: BreakerOptions;
}

/** What `mill.documents` returns. */
export type DocumentSchedule<Doc = Record<string, unknown>> = Omit<Scheduler<Doc>, 'failingMs' | 'depth'>;

export interface DocumentSchedulesOptions {
  readonly settings: MillSettings;
  readonly log: Logger;
  /** The mill's store, or a function that resolves to it. */
  readonly store: Store | (() => Promise<Store>);
  readonly meter: Meter;
  readonly tracer: () => Tracer | undefined;
  readonly fault: (error: unknown, where: string) => void;
  /** The running instance; undefined while the mill is stopped. */
  readonly instance: () => ScheduleHost | undefined;
}

/** The running instance, as schedules see it. */
export interface ScheduleHost {
  /** The limits of a schedule; undefined if the store has none. */
  scheduleGate(name: string): ScheduleGate | undefined;
  /** A schedule was defined. Throws if its limits cannot be kept. */
  scheduleAdded(): void;
}

/**
 * A document schedule with its name: its collection, then `collection (2)` and so on for further schedules of the same.
 */
export interface NamedSchedule {
  readonly name: string;
  readonly schedule: DocumentSchedule;
}

const KEYS = ['collection', 'database', 'fields', 'condition', 'limits', 'breaker', ...SCHEDULE_KEYS];
/** A failure that lasts longer than this share of a lease is reported. */
const TROUBLE_SHARE = 2 / 3;

function placed<Doc>(store: Store, place: DocumentPlace): DocumentJobStore<Doc> {
  if (store.documents === undefined)
    throw new OptionError(
      `The store ${show(store.kind)} cannot run documents; its \`documents\` is missing.`,
    );
  return store.documents(place) as unknown as DocumentJobStore<Doc>;
}

const PAUSE_AGE_MS = 1_000;

/** Whether all work of the cluster is paused, read at most once a second for all schedules of a mill. */
class PauseReader {
  readonly #store: () => Promise<Store>;
  #reading: Promise<boolean> | undefined;
  #readAt = -Infinity;
  last: boolean = false;

  constructor(store: () => Promise<Store>) {
    this.#store = store;
  }

  async read(): Promise<boolean> {
    const { jobs, clock } = await this.#store();
    const now = clock.monotonic();
    if (this.#reading === undefined || now - this.#readAt >= PAUSE_AGE_MS) {
      this.#readAt = now;
      this.#reading = jobs.isPaused(EVERYTHING);
    }
    const reading = this.#reading;
    try {
      return (this.last = await reading);
    } catch (error) {
      if (this.#reading === reading) this.#reading = undefined;
      throw error;
    }
  }
}

/** The document schedules of one mill. */
export class DocumentSchedules {
  readonly #options: DocumentSchedulesOptions;
  readonly #schedulers = new Map<Scheduler<never>, string>();
  readonly #names = new Map<string, Scheduler<never>>();
  readonly #limits = new Map<string, ScopeLimits | undefined>();
  readonly #pause: PauseReader;

  constructor(options: DocumentSchedulesOptions) {
    this.#options = options;
    const { store } = options;
    this.#pause = new PauseReader(typeof store === 'function' ? store : () => Promise.resolve(store));
  }

  /** True while all work of the cluster was paused when a schedule here last asked. */
  get isPaused(): boolean {
    return this.#pause.last;
  }

  add<Doc>(given: DocumentOptions<Doc>): DocumentSchedule<Doc> {
    checkKeys('documents', given, KEYS);
    const { collection, database, fields, condition, limits, breaker, ...options } = given;
    const where = `documents(${show(checkText('documents', 'collection', collection))})`;
    checkKeys(`${where}: limits`, limits, ['concurrency', 'rate', 'shared']);
    const limited = definedLimits(where, limits, breaker);
    const place = {
      collection,
      ...(database === undefined ? {} : { database }),
      ...(fields === undefined ? {} : { fields }),
      ...(condition === undefined ? {} : { condition }),
    };
    const { store, log, fault, settings, meter, tracer, instance } = this.#options;
    const name = this.#freeName(collection);
    const { min, maxWithoutWakeUp: max } = settings.pollMs;
    const scheduler = new Scheduler<Doc>(
      {
        ...options,
        store:
          typeof store === 'function'
            ? async () => placed<Doc>(await store(), place)
            : placed<Doc>(store, place),
        logger: log,
        pollInterval: { min, max },
      },
      {
        where,
        fallback: (error, what) => fault(error, `${where}: ${what}`),
        measures: { name, meter, tracer },
        isPaused: () => this.#pause.read(),
        gate: () => instance()?.scheduleGate(name),
        check: () => {
          if (limited !== undefined && instance() === undefined)
            throw new OptionError(
              `${where}: a schedule with limits needs the lease of its mill's instance; call mill.start().`,
            );
        },
      },
    );
    this.#limits.set(name, limited);
    try {
      instance()?.scheduleAdded();
    } catch (error) {
      this.#limits.delete(name);
      throw error;
    }
    this.#schedulers.set(scheduler as unknown as Scheduler<never>, where);
    this.#names.set(name, scheduler as unknown as Scheduler<never>);
    return scheduler;
  }

  /** All schedules by name, with the limits that the code gives them. */
  get limits(): ReadonlyMap<string, ScopeLimits | undefined> {
    return this.#limits;
  }

  get named(): readonly NamedSchedule[] {
    return [...this.#names].map(([name, scheduler]) => ({
      name,
      schedule: scheduler,
    }));
  }

  #freeName(collection: string): string {
    for (let number = 2, name = collection; ; number += 1) {
      if (!this.#names.has(name)) return name;
      name = `${collection} (${String(number)})`;
    }
  }

  /** Starts all schedules; if one cannot start, stops the others and throws its error. */
  async start(): Promise<void> {
    const starts = [...this.#schedulers.keys()].map((scheduler) => scheduler.start());
    const refused = (await Promise.allSettled(starts)).find((start) => start.status === 'rejected');
    if (refused === undefined) return;
    await this.stop(0);
    throw refused.reason;
  }

  async stop(timeout: number): Promise<void> {
    await Promise.all([...this.#schedulers.keys()].map((scheduler) => scheduler.stop({ timeout })));
  }

  /** Returns the index advice for all schedules; undefined if there are none. */
  async indexFaults(): Promise<readonly string[] | undefined> {
    const schedulers = [...this.#schedulers.keys()];
    if (schedulers.length === 0) return undefined;
    return (await Promise.all(schedulers.map((scheduler) => scheduler.indexFaults()))).flat();
  }

  /** Returns how much is due under each schedule that runs here. */
  async depths(cap: number): Promise<readonly Depth[]> {
    const limit = capFor(cap, this.#names.size);
    const found = [...this.#names].map(async ([name, scheduler]) => {
      const depth = await scheduler.depth(limit);
      return depth === undefined ? [] : [{ name, counts: {}, ...depth }];
    });
    return (await Promise.all(found)).flat();
  }

  /** The schedules whose store has failed for longer than `TROUBLE_SHARE` of a lease, in words. */
  get troubles(): readonly string[] {
    const limitMs = this.#options.settings.leaseMs * TROUBLE_SHARE;
    return [...this.#schedulers].flatMap(([{ failingMs }, where]) =>
      failingMs > limitMs
        ? [`${where}: the store has failed for ${String(Math.round(failingMs / 1000))} s`]
        : [],
    );
  }
}
