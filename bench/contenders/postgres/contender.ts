import { createRequire } from 'node:module';
import type pg from 'pg';
import type { Contender, Place } from '../contender.js';

export interface PostgresModule {
  readonly title: string;
  /** Settings by variant, as they are written into the results. */
  readonly variants: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  /** Packages whose versions belong in the results. */
  readonly packages: readonly string[];
  /** The copy of node-postgres that it uses. */
  pg(): Promise<typeof pg>;
  /** `place.uri` has the database in it. */
  open(place: Place): Promise<Contender>;
}

/** Each in a file of its own, loaded only when it is measured. */
const MODULES = {
  raw: () => import('./raw.js'),
  tidemill: () => import('./tidemill.js'),
  'pg-boss': () => import('./pg-boss.js'),
  'graphile-worker': () => import('./graphile-worker.js'),
  bullmq: () => import('./bullmq.js'),
};

export type PostgresName = keyof typeof MODULES;

export const POSTGRES = Object.keys(MODULES) as readonly PostgresName[];

export const loadPostgres = async (name: PostgresName): Promise<PostgresModule> =>
  (await MODULES[name]()).contender;

/** The size of every contender's pool, so that none gets more of the server than another. */
export const CONNECTIONS = 10;

const here = createRequire(import.meta.url);

/** The copy of node-postgres that a package finds. */
export function driverOf(name: string): Promise<typeof pg> {
  return Promise.resolve(createRequire(here.resolve(name))('pg') as typeof pg);
}
