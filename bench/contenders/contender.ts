import type { MongoClient } from 'mongodb';

/** Where a contender finds its database, and which of its settings to use. */
export interface Place {
  readonly uri: string;
  readonly database: string;
  /** One of the contender's `variants`. */
  readonly variant: string;
  /** How many jobs will be worked on, for contenders that need to know in advance. */
  readonly jobs?: number;
}

/** The payload of a job; `t` is the producer's monotonic time in nanoseconds, as text. */
export interface Payload {
  readonly n: number;
  readonly t?: string;
}

/** One library running in this process, reduced to what is measured. */
export interface Contender {
  /** Enqueues one job through its public API. */
  enqueue(data: Payload): Promise<unknown>;
  /** Enqueues many jobs through its own bulk call; absent if it has none. */
  enqueueMany?(data: readonly Payload[]): Promise<unknown>;
  /** Creates a backlog by the fastest way that leaves documents as its own calls would. Not timed. */
  fill(count: number): Promise<void>;
  /** Starts to work; resolves when the library says that it has started. */
  start(run: (data: Payload) => void): Promise<void>;
  /** Returns true when no job of the backlog is left unfinished or unrecorded in the database. */
  finished(): Promise<boolean>;
  /** Its own figures that belong in the results. */
  extra?(): Record<string, unknown>;
  stop(): Promise<void>;
}

export interface ContenderModule {
  readonly title: string;
  /** Settings by variant, as they are written into the results. */
  readonly variants: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  /** Packages whose versions belong in the results. */
  readonly packages: readonly string[];
  /** The driver class that the library is meant to be used with. */
  driver(): Promise<typeof MongoClient>;
  open(client: MongoClient, place: Place): Promise<Contender>;
}

/** Each in a file of its own, loaded only when it is measured. */
const MODULES = {
  raw: () => import('./raw.js'),
  tidemill: () => import('./tidemill.js'),
  documents: () => import('./documents.js'),
  agenda: () => import('./agenda.js'),
  pulse: () => import('./pulse.js'),
  mongodash: () => import('./mongodash.js'),
  'mongodb-cron': () => import('./mongodb-cron.js'),
};

export type ContenderName = keyof typeof MODULES;

export const CONTENDERS = Object.keys(MODULES) as readonly ContenderName[];

export const load = async (name: ContenderName): Promise<ContenderModule> =>
  (await MODULES[name]()).contender;

/** Loads a library that is installed in this folder only, so there are no types for it elsewhere. */
export const peer = (name: string): Promise<any> => import(name);

/** Prints the first error of a library and drops the rest. Errors while it stops do not matter. */
export function complaints(name: string): { heard: (error: unknown) => void; stopping: () => void } {
  let silent = false;
  return {
    heard: (error) => {
      if (!silent) console.error(`${name}:`, error instanceof Error ? error.message : error);
      silent = true;
    },
    stopping: () => void (silent = true),
  };
}
