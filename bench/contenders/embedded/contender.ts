import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Contender, Place } from '../contender.js';

export interface EmbeddedModule {
  readonly title: string;
  /** Settings by variant, as they are written into the results. */
  readonly variants: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  /** Packages whose versions belong in the results. */
  readonly packages: readonly string[];
  /** `place.uri` is the URL of a folder, in which each database is a folder. */
  open(place: Place): Promise<Contender>;
}

/** Each in a file of its own, loaded only when it is measured. */
const MODULES = {
  raw: () => import('./raw.js'),
  tidemill: () => import('./tidemill.js'),
  plainjob: () => import('./plainjob.js'),
};

export type EmbeddedName = keyof typeof MODULES;

export const EMBEDDED = Object.keys(MODULES) as readonly EmbeddedName[];

export const loadEmbedded = async (name: EmbeddedName): Promise<EmbeddedModule> =>
  (await MODULES[name]()).contender;

export const folderOf = ({ uri, database }: Place): string => join(fileURLToPath(uri), database);

/** The file of a library that wants one in a folder that is there. */
export function fileIn(place: Place): string {
  const folder = folderOf(place);
  mkdirSync(folder, { recursive: true });
  return join(folder, 'queue.db');
}
