import type { MongoClient } from 'mongodb';

/** Where a contender finds its database, and which of its settings are wanted. */
export interface Place {
  readonly uri: string;
  readonly database: string;
  /** One of the contender's `variants`. */
  readonly variant: string;
  /** How many jobs are going to be worked on; only who needs to know in advance looks at it. */
  readonly jobs?: number;
}

/** What a handler is given; `t` is the producer's monotonic time in nanoseconds, as text. */
export interface Payload {
  readonly n: number;
  readonly t?: string;
}

/** One library at work in this process, reduced to what is measured. */
export interface Contender {
  /** One job through its public call. */
  enqueue(data: Payload): Promise<unknown>;
  /** Many jobs through its own call for many; absent where it has none. */
  enqueueMany?(data: readonly Payload[]): Promise<unknown>;
  /** A backlog, by the fastest way that leaves documents as its own calls would. Not timed. */
  fill(count: number): Promise<void>;
  /** Begins to work; resolves when the library says that it has. */
  start(run: (data: Payload) => void): Promise<void>;
  /** True when no job of the backlog is left unfinished or unrecorded in the database. */
  finished(): Promise<boolean>;
  /** Figures of its own that belong in the results. */
  extra?(): Record<string, unknown>;
  stop(): Promise<void>;
}

export interface ContenderModule {
  readonly title: string;
  /** Settings by variant, as they are written into the results. */
  readonly variants: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  /** Packages whose versions belong in the results, and the folder from which they are found. */
  readonly packages: readonly string[];
  /** The driver class that it is meant to be used with. */
  driver(): Promise<typeof MongoClient>;
  open(client: MongoClient, place: Place): Promise<Contender>;
}

/** Each in a file of its own, loaded only where it is measured. */
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

/** A library that is installed in this folder only, so it has no types where it is not. */
export const peer = (name: string): Promise<any> => import(name);

/** Says the first error of a library and keeps the rest to itself; errors while it stops are its own business. */
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
