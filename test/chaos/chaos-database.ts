import type { Store } from '../../src/store/port.js';

/** Tells the faults of a database when to end, and records what they did. */
export interface Harm {
  readonly going: () => boolean;
  readonly done: (what: string) => void;
}

/** A database on which chaos runs. */
export interface ChaosDatabase {
  /** The address for worker processes; see database.ts. Connections through this address may freeze. */
  readonly address: string;
  /** The same database for callers that must not be disturbed: the judge, and a writer that is never harmed. */
  readonly direct: string;
  /** A store for the producer and the judge. */
  readonly open: () => Store;
  /** Injects every fault that the server itself supports, each at least once, until chaos ends. */
  readonly harm: (harm: Harm) => Promise<void>;
  /** What transactions wrote that complete work: the job, or the state of a document, one entry per effect. */
  readonly effects: () => Promise<readonly string[]>;
  /** Removes everything. */
  readonly clear: () => Promise<void>;
}

export type Harms = readonly (readonly [what: string, harm: () => Promise<unknown>])[];

/**
 * Injects one fault after the other while chaos lasts, and until each succeeded once; a fault that fails is tried
 * again.
 */
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
