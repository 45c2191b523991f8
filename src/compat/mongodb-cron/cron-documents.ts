import type { Document, MongoClient } from 'mongodb';
import type { DocumentJob, DocumentLook, Fenced, JobStore, StoreCall } from '../../documents/index.js';
import { mongodb } from '../../mongodb/index.js';
import type { CronCollection, MongoCronCfg } from './config.js';
import { asCronReadsIt } from './readings.js';

type Job = DocumentJob<Document>;
type Store = JobStore<Document>;

function storeOf(collection: CronCollection, config: MongoCronCfg): Store {
  // The driver declares it as internal.
  const client = Reflect.get(collection, 'client') as MongoClient;
  const { condition } = config;
  return mongodb({ client, database: collection.dbName, createIndexes: 'unchecked' }).documents({
    collection: collection.collectionName,
    fields: {
      sleepUntil: config.sleepUntilFieldPath ?? 'sleepUntil',
      interval: config.intervalFieldPath ?? 'interval',
      repeatUntil: config.repeatUntilFieldPath ?? 'repeatUntil',
      autoRemove: config.autoRemoveFieldPath ?? 'autoRemove',
      timezone: config.timezoneFieldPath ?? null,
      failure: config.failureFieldPath === undefined ? 'scheduleFailure' : config.failureFieldPath,
    },
    ...(condition && Object.keys(condition).length > 0 ? { condition } : {}),
  });
}

/** A lock that the scheduler takes for renewed. */
interface UnrenewedLock {
  /** What the lock wrote. */
  readonly written: Date;
  /** What the scheduler believes to be there. */
  believed: Date;
}

/** More than a scheduler holds; of a document that it lost, nothing says when it is forgotten. */
const MOST_LOCKS = 10_000;

const textOf = (id: unknown): string => `${typeof id} ${JSON.stringify(id)}`;

/**
 * The documents of a `MongoCron`: the store of `tidemill/mongodb`, which here reads schedules as mongodb-cron does, and
 * which the options may make less careful.
 */
export class CronDocuments {
  readonly #config: MongoCronCfg;
  /** Documents whose handlers run. */
  readonly #running = new Set<string>();
  readonly #locks = new Map<unknown, UnrenewedLock>();

  constructor(config: MongoCronCfg) {
    this.#config = config;
  }

  /** Runs the handler of a locked document. */
  async running(job: Job, handler: () => Promise<void>): Promise<void> {
    const key = textOf(job.id);
    this.#running.add(key);
    try {
      await handler();
    } finally {
      this.#running.delete(key);
    }
  }

  of(collection: CronCollection): Store {
    const store = storeOf(collection, this.#config);
    const locked = (until: Date, job: Job): Job => {
      if (this.#config.renewLocks === false) this.#note(job.id, until);
      return asCronReadsIt(job);
    };
    return {
      ...store,
      lockNext: async (until, call) => {
        const job = await store.lockNext(until, call);
        return job ? locked(until, job) : job;
      },
      lockMany: async (until, call) =>
        ((await store.lockMany?.(until, call)) ?? []).map((job) => locked(until, job)),
      current: async (id, call) => {
        const job = await store.current?.(id, call);
        if (!job) return job;
        const lock = this.#locks.get(id);
        const isHeld = lock !== undefined && job.sleepUntil?.getTime() === lock.written.getTime();
        return asCronReadsIt(isHeld ? { ...job, sleepUntil: lock.believed } : job);
      },
      read: (document) => asCronReadsIt(store.read?.(document) ?? { id: document['_id'] }),
      update: (id, changes, { signal, ...fence }) =>
        store.update(id, changes, { signal, ...this.#fence(id, fence) }),
      remove: (id, { signal, ...fence }) => store.remove(id, { signal, ...this.#fence(id, fence) }),
      settle: async (writes, call) =>
        (await store.settle?.(
          writes.map(({ ifSleepUntil: _at, ifRevision: _schedule, ...write }, index) => ({
            ...write,
            ...this.#fence(write.id, writes[index] ?? {}),
          })),
          call,
        )) ?? [],
      renew: async (locks, until, call) => {
        if (this.#config.renewLocks !== false) return (await store.renew?.(locks, until, call)) ?? [];
        for (const { id } of locks) {
          const lock = this.#locks.get(id);
          if (lock !== undefined) lock.believed = until;
        }
        return locks.map(() => true);
      },
      look: async (options) => {
        const found = (await store.look?.(options)) ?? { dueInMs: null, misfits: [] };
        return this.#config.runNonDates === true ? runAll(store, found, options) : found;
      },
    };
  }

  #note(id: unknown, written: Date): void {
    const [oldest] = this.#locks.keys();
    if (this.#locks.size >= MOST_LOCKS) this.#locks.delete(oldest);
    this.#locks.set(id, { written, believed: written });
  }

  /**
   * A handler may call `reschedule` with its document, which then gives up the lock; the time in that document is the one
   * before the lock.
   */
  #fence(id: unknown, { ifSleepUntil, ifRevision }: Fenced): Fenced {
    if (this.#config.fencing === false || this.#running.has(textOf(id))) return {};
    const lock = this.#locks.get(id);
    const at = lock && ifSleepUntil?.getTime() === lock.believed.getTime() ? lock.written : ifSleepUntil;
    return {
      ...(at === undefined ? {} : { ifSleepUntil: at }),
      ...(ifRevision === undefined ? {} : { ifRevision }),
    };
  }
}

/** Makes documents due that have a time which is neither a date nor null. */
async function runAll(store: Store, found: DocumentLook, { signal }: StoreCall): Promise<DocumentLook> {
  const now = new Date(store.clock?.now() ?? Date.now());
  for (const { id, value } of found.misfits)
    await store.update(id, { sleepUntil: now }, { ifSleepUntil: value as Date, signal });
  return found.misfits.length === 0 ? found : { dueInMs: 0, misfits: [] };
}
