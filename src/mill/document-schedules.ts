import { OptionError } from '../core/errors.js';
import type { Logger } from '../core/logger.js';
import type { Meter } from '../core/meter.js';
import type { Tracer } from '../core/tracer.js';
import { checkKeys, checkText, show } from '../core/options.js';
import { SCHEDULE_KEYS, type ScheduleOptions } from '../documents/options.js';
import { Scheduler } from '../documents/scheduler.js';
import type { MillSettings } from './options.js';
import type { DocumentJobStore, DocumentPlace } from '../store/documents.js';
import { capFor, type Depth, type Store } from '../store/port.js';

/** Options of `mill.documents`: where your documents are, and how each runs when its own schedule is due. */
export interface DocumentOptions<Doc = Record<string, unknown>> extends ScheduleOptions<Doc>, DocumentPlace {}

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
}

/**
 * A document schedule with its name: its collection, then `collection (2)` and so on for further schedules of the same.
 */
export interface NamedSchedule {
  readonly name: string;
  readonly schedule: DocumentSchedule;
}

const PLACE_KEYS = ['collection', 'database', 'fields', 'condition'];
/** A failure that lasts longer than this share of a lease is reported. */
const TROUBLE_SHARE = 2 / 3;

function placed<Doc>(store: Store, place: DocumentPlace): DocumentJobStore<Doc> {
  if (store.documents === undefined)
    throw new OptionError(
      `The store ${show(store.kind)} cannot run documents; its \`documents\` is missing.`,
    );
  return store.documents(place) as unknown as DocumentJobStore<Doc>;
}

/** The document schedules of one mill. */
export class DocumentSchedules {
  readonly #options: DocumentSchedulesOptions;
  readonly #schedulers = new Map<Scheduler<never>, string>();
  readonly #names = new Map<string, Scheduler<never>>();

  constructor(options: DocumentSchedulesOptions) {
    this.#options = options;
  }

  add<Doc>(given: DocumentOptions<Doc>): DocumentSchedule<Doc> {
    checkKeys('documents', given, [...PLACE_KEYS, ...SCHEDULE_KEYS]);
    const { collection, database, fields, condition, ...options } = given;
    const where = `documents(${show(checkText('documents', 'collection', collection))})`;
    const place = {
      collection,
      ...(database === undefined ? {} : { database }),
      ...(fields === undefined ? {} : { fields }),
      ...(condition === undefined ? {} : { condition }),
    };
    const { store, log, fault, settings, meter, tracer } = this.#options;
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
      },
    );
    this.#schedulers.set(scheduler as unknown as Scheduler<never>, where);
    this.#names.set(name, scheduler as unknown as Scheduler<never>);
    return scheduler;
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
