import { randomBytes, randomUUID } from 'node:crypto';
import { describe, inject } from 'vitest';
import { Scheduler, type JobStore } from '../../../src/documents/index.js';
import { Tidemill, type DocumentOptions, type DocumentSchedule } from '../../../src/index.js';
import { memory } from '../../../src/memory/index.js';
import type { MemoryStore } from '../../../src/memory/store.js';
import { mongodb } from '../../../src/mongodb/index.js';
import type { Store } from '../../../src/store/port.js';
import { runsOn } from '../../support/embedded-suites.js';
import {
  freshEmbedded,
  freshPostgres,
  freshUri,
  grantTable,
  rawClient,
  rawPool,
  sharedEmbedded,
  useEmbedded,
} from '../../support/stores.js';
import { OwnStore, type OwnJob } from '../own-store.js';
import { cleanUpAfterEach } from '../../support/cleanup.js';

type Doc = Record<string, unknown>;
/** One of our stores, which a mill runs; or three methods, which a standalone scheduler runs. */
export type AnyStore = Store | JobStore;

/** The documents of one test, in whichever store. */
export interface DocumentFixture {
  readonly store: AnyStore;
  readonly collection: string;
  /** The store of another process on the same documents. */
  readonly another: () => AnyStore;
  /** Inserts a document and returns its id. */
  insert(document: Doc): Promise<string>;
  get(id: string): Promise<Doc | undefined>;
  change(id: string, fields: Doc): Promise<void>;
  remove(id: string): Promise<void>;
}

export interface FixtureCase {
  readonly name: 'three methods' | 'memory' | 'mongodb' | 'postgres' | 'embedded';
  readonly open: () => Promise<DocumentFixture>;
}

const jobOf = ({ sleepUntil, interval, repeatUntil, autoRemove, timezone, ...data }: Doc): Partial<OwnJob> =>
  ({ sleepUntil, interval, repeatUntil, autoRemove, timezone, data }) as Partial<OwnJob>;

function inThreeMethods(): DocumentFixture {
  const store = new OwnStore();
  return {
    store,
    collection: '',
    another: () => store,
    insert: async (document) => String(store.insert(jobOf(document)).id),
    get: async (id) => {
      const job = store.jobs.get(id);
      return job === undefined ? undefined : { ...job, ...job.data, scheduleFailure: job.failure };
    },
    change: async (id, fields) => void Object.assign(store.jobs.get(id) ?? {}, fields),
    remove: async (id) => void store.jobs.delete(id),
  };
}

function inMemory(): DocumentFixture {
  const store: MemoryStore = memory();
  const documents = store.collection('reminders');
  return {
    store,
    collection: 'reminders',
    another: () => store,
    insert: async (document) => String(documents.insert(document)._id),
    get: async (id) => documents.get(id),
    change: async (id, fields) => documents.set({ ...documents.get(id), ...fields }),
    remove: async (id) => void documents.delete(id),
  };
}

// Of the current test file, which closes them.
let client: ReturnType<typeof rawClient>;
let pool: ReturnType<typeof rawPool>;

function inMongodb(): DocumentFixture {
  const uri = freshUri();
  const documents = client.db(new URL(uri).pathname.slice(1)).collection<{ _id: string }>('reminders');
  const another = (): Store => mongodb({ uri });
  return {
    store: another(),
    collection: 'reminders',
    another,
    insert: async (document) => {
      const _id = randomUUID();
      await documents.insertOne({ _id, ...document });
      return _id;
    },
    get: async (id) => (await documents.findOne({ _id: id })) ?? undefined,
    change: async (id, fields) => {
      await documents.updateOne({ _id: id }, { $set: fields });
    },
    remove: async (id) => {
      await documents.deleteOne({ _id: id });
    },
  };
}

const COLUMNS = [
  'kind',
  'sleepUntil',
  'interval',
  'repeatUntil',
  'autoRemove',
  'timezone',
  'scheduleFailure',
  'note',
];
const TABLE = `(id text primary key, kind text, "sleepUntil" timestamptz, "interval" text, "repeatUntil" timestamptz,
  "autoRemove" boolean, timezone text, "scheduleFailure" jsonb, note text)`;

interface Database {
  query(text: string, values?: unknown[]): Promise<{ rows: unknown[] }>;
}

async function inTable(
  database: Database,
  open: () => Store,
  another: () => Store,
): Promise<DocumentFixture> {
  const table = `reminders_${randomBytes(6).toString('hex')}`;
  await database.query(`create table ${table} ${TABLE}`);
  const set = async (id: string, fields: Doc): Promise<void> => {
    for (const [name, value] of Object.entries(fields)) {
      if (!COLUMNS.includes(name)) throw new Error(`no column ${name}`);
      await database.query(`update ${table} set "${name}" = $2 where id = $1`, [id, value]);
    }
  };
  return {
    store: open(),
    collection: table,
    another,
    insert: async (document) => {
      const id = randomUUID();
      const { sleepUntil, ...rest } = document;
      await database.query(`insert into ${table} (id) values ($1)`, [id]);
      await set(id, { ...rest, sleepUntil });
      return id;
    },
    get: async (id) =>
      (await database.query(`select * from ${table} where id = $1`, [id])).rows[0] as Doc | undefined,
    change: set,
    remove: async (id) => {
      await database.query(`delete from ${table} where id = $1`, [id]);
    },
  };
}

const fixtures: readonly (FixtureCase & { readonly prepare?: () => void })[] = [
  { name: 'three methods', open: async () => inThreeMethods() },
  { name: 'memory', open: async () => inMemory() },
  { name: 'mongodb', open: async () => inMongodb() },
  {
    name: 'postgres',
    open: async () => {
      const fixture = await inTable(pool, freshPostgres, freshPostgres);
      await grantTable((text) => pool.query(text), 3, 'public', fixture.collection);
      return fixture;
    },
  },
  {
    name: 'embedded',
    open: () => inTable(sharedEmbedded(), freshEmbedded, freshEmbedded),
    prepare: useEmbedded,
  },
];

/** Runs the same tests on the documents of every store that is meant; on the embedded one only if they concern it. */
export function eachDocumentStore(
  what: string,
  facts: (fixture: FixtureCase) => void,
  isMeant: (fixture: FixtureCase) => boolean = () => true,
): void {
  client = rawClient(inject('mongoUri'));
  pool = rawPool();
  for (const fixture of fixtures.filter((one) => isMeant(one) && runsOn(one.name, what))) {
    describe(`${what} (${fixture.name})`, () => {
      fixture.prepare?.();
      facts(fixture);
    });
  }
}

const running: { stop(options: { timeout: number }): Promise<void> }[] = [];
cleanUpAfterEach(() => Promise.all(running.splice(0).map((one) => one.stop({ timeout: 0 }))));

export interface Watched {
  readonly schedule: DocumentSchedule;
  readonly errors: { readonly error: Error; readonly where: string }[];
  /** Ids of the documents that ran, in order. */
  readonly ran: string[];
}

function scheduleOf(store: AnyStore, options: DocumentOptions): DocumentSchedule {
  if ('lockNext' in store) {
    const { collection: _none, ...rest } = options;
    const scheduler = new Scheduler({ store, logger: false, ...rest });
    running.push(scheduler);
    return scheduler;
  }
  const mill = new Tidemill({ store, logger: false });
  running.push(mill);
  return mill.documents(options);
}

/** A schedule on the fixture, stopped after the test. */
export function watched(
  { store: own, collection }: DocumentFixture,
  { onDocument, ...options }: Partial<DocumentOptions> = {},
  store: AnyStore = own,
): Watched {
  const errors: Watched['errors'] = [];
  const ran: string[] = [];
  const schedule = scheduleOf(store, {
    collection,
    onError: (error, { where }) => void errors.push({ error, where }),
    ...options,
    onDocument: async (document, context) => {
      ran.push(String(context.job.id));
      await onDocument?.(document, context);
    },
  });
  return { schedule, errors, ran };
}

export const past = (ms = 1_000): Date => new Date(Date.now() - ms);
export const future = (ms: number): Date => new Date(Date.now() + ms);

export const sleepUntil = async (fixture: DocumentFixture, id: string): Promise<unknown> =>
  (await fixture.get(id))?.['sleepUntil'];
