import type { Store } from '../../src/store/port.js';

/** How a ground's own harm learns when to end, and tells what it did. */
export interface Harm {
  readonly going: () => boolean;
  readonly done: (what: string) => void;
}

/** A database that chaos happens on. */
export interface Ground {
  /** Where worker processes find it: see place.ts. Connections by this address may freeze. */
  readonly address: string;
  /** The same for those who must not be hindered: the judge, and a writer that is never harmed. */
  readonly direct: string;
  /** A store for the producer and the judge. */
  readonly open: () => Store;
  /** Does what can be done to the server itself, each kind at least once, until nothing is going on any more. */
  readonly harm: (harm: Harm) => Promise<void>;
  /** What was written inside transactions that complete work: the job, or the state of a document; one for each effect. */
  readonly effects: () => Promise<readonly string[]>;
  /** Takes everything away. */
  readonly clear: () => Promise<void>;
}

export type Harms = readonly (readonly [what: string, harm: () => Promise<unknown>])[];

/** One after the other, for as long as harm is done, and until each was done once: one that fails is tried again. */
export async function inTurn(
  harms: Harms,
  { going, done }: Harm,
  restMs: () => number,
  failed: (what: string, error: unknown) => void = () => undefined,
): Promise<void> {
  const undone = new Set(harms.map(([what]) => what));
  for (let round = 0; going() || undone.size > 0; round += 1) {
    const [what, harm] = harms[round % harms.length] as Harms[number];
    if (!going() && !undone.has(what)) continue;
    await sleep(restMs());
    try {
      await harm();
      undone.delete(what);
      done(what);
    } catch (error) {
      failed(what, error);
    }
  }
}

/** Longer than the lease of any chaos run. */
export const OUTAGE_MS = 5_000;

export const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
export const random = (limit: number): number => Math.floor(Math.random() * limit);
