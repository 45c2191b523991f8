/** Loads the libraries that users come from. They are installed apart from this package, and each has its own types. */
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { fetchPackages } from '../../../scripts/fetch.mjs';

const folder = resolve(import.meta.dirname, '../../originals');

async function load<T>(entry: string): Promise<T> {
  await fetchPackages('test/originals');
  return (await import(pathToFileURL(join(folder, 'node_modules', entry)).href)) as T;
}

/** What Agenda and Pulse have in common. */
export interface Scheduler {
  define(name: string, work: (job: { attrs: { data: never } }) => unknown, options?: object): unknown;
  create(name: string, data?: unknown): SchedulerJob;
  now(name: string, data?: unknown): Promise<SchedulerJob>;
  schedule(when: Date | string, name: string, data?: unknown): Promise<SchedulerJob>;
  every(interval: string | number, name: string, data?: unknown, options?: object): Promise<SchedulerJob>;
  start(): Promise<void>;
  stop(): Promise<void>;
  close?(): Promise<void>;
}

interface SchedulerJob {
  readonly attrs: Readonly<Record<string, unknown>>;
  save(): Promise<unknown>;
  priority(priority: string | number): SchedulerJob;
  schedule(when: Date | string): SchedulerJob;
  unique(query: object): SchedulerJob;
  disable(): SchedulerJob;
  repeatEvery(interval: string, options?: object): SchedulerJob;
  repeatAt(time: string): SchedulerJob;
}

export async function newAgenda(uri: string): Promise<Scheduler> {
  const { Agenda } = await load<{ Agenda: new (options: object) => Scheduler & { ready: Promise<void> } }>(
    'agenda/dist/index.js',
  );
  const { MongoBackend } = await load<{ MongoBackend: new (options: object) => object }>(
    '@agendajs/mongo-backend/dist/index.js',
  );
  const agenda = new Agenda({ backend: new MongoBackend({ address: uri }), processEvery: 100 });
  await agenda.ready;
  return agenda;
}

export async function newPulse(uri: string): Promise<Scheduler> {
  const { Pulse } = await load<{ Pulse: new (options: object) => Scheduler & { _ready: Promise<void> } }>(
    '@pulsecron/pulse/dist/index.js',
  );
  const pulse = new Pulse({ db: { address: uri }, processEvery: '0.1 seconds', resumeOnRestart: true });
  await pulse._ready;
  return pulse;
}

export interface Boss {
  start(): Promise<unknown>;
  stop(options?: object): Promise<void>;
  on(event: 'error', listener: (error: Error) => void): unknown;
  createQueue(name: string, options?: object): Promise<void>;
  send(name: string, data?: object | null, options?: object): Promise<string | null>;
  schedule(name: string, cron: string, data?: object | null, options?: object): Promise<void>;
  work(
    name: string,
    options: object,
    handler: (jobs: { id: string; data: unknown }[]) => Promise<unknown>,
  ): Promise<string>;
  fetch(name: string): Promise<{ id: string }[]>;
  cancel(name: string, id: string): Promise<unknown>;
  complete(name: string, id: string): Promise<unknown>;
  fail(name: string, id: string, data?: object): Promise<unknown>;
}

export async function newBoss(connectionString: string, schema: string): Promise<Boss> {
  const { PgBoss } = await load<{ PgBoss: new (options: object) => Boss }>('pg-boss/dist/index.js');
  const boss = new PgBoss({ connectionString, schema, max: 4 });
  boss.on('error', () => undefined);
  await boss.start();
  return boss;
}

export interface Graphile {
  readonly run: (options: object) => Promise<{ stop(): Promise<void>; readonly promise: Promise<void> }>;
  readonly makeWorkerUtils: (options: object) => Promise<{
    addJob(task: string, payload?: unknown, spec?: object): Promise<{ readonly id: string }>;
    migrate(): Promise<void>;
    release(): Promise<void>;
  }>;
  Logger: new (factory: () => () => void) => object;
}

export const loadGraphile = (): Promise<Graphile> => load<Graphile>('graphile-worker/dist/index.js');

/** A MongoCron on a collection, which runs while `work` does. */
export async function newMongoCron(
  uri: string,
  collection: string,
): Promise<{ while(work: () => Promise<void>): Promise<void> }> {
  const { MongoCron } = await load<{
    MongoCron: new (options: object) => { start(): Promise<void>; stop(): Promise<void> };
  }>('mongodb-cron/dist/index.js');
  const { MongoClient } = await load<{
    MongoClient: new (uri: string) => {
      db(): { collection(name: string): unknown };
      close(): Promise<void>;
    };
  }>('mongodb/lib/index.js');
  return {
    while: async (work) => {
      const client = new MongoClient(uri);
      const cron = new MongoCron({ collection: client.db().collection(collection), idleDelay: 20 });
      await cron.start();
      try {
        await work();
      } finally {
        await cron.stop();
        await client.close();
      }
    },
  };
}
