import type { Store } from '../../src/store/port.js';

/** How a ground's own harm learns when to end, and tells what it did. */
export interface Harm {
  readonly going: () => boolean;
  readonly done: (what: string) => void;
}

/** A database that chaos happens on. */
export interface Ground {
  /** Where worker processes find it: see place.ts. */
  readonly address: string;
  /** A store for the producer and the judge. */
  readonly open: () => Store;
  /** Does what can be done to the server itself, each kind at least once, until nothing is going on any more. */
  readonly harm: (harm: Harm) => Promise<void>;
  /** What was written inside transactions that complete work: the job, or the state of a document; one for each effect. */
  readonly effects: () => Promise<readonly string[]>;
  /** Takes everything away. */
  readonly clear: () => Promise<void>;
}

/** Longer than the lease of any chaos run. */
export const OUTAGE_MS = 5_000;

export const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
export const random = (limit: number): number => Math.floor(Math.random() * limit);
