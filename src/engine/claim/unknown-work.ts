import type { Work } from '../../core/records/work.js';

/** Work that an instance may hold without knowing: a claim whose response was lost took it. */
export interface UnknownWork {
  readonly has: (work: Work) => boolean;
  /** A search for it was answered. */
  readonly lookedFor: () => void;
}

interface Claims {
  readonly claiming: string | undefined;
  suspectAt: number;
}

/** For how many leases, after a lost response, the instance searches for work that it holds without knowing. */
const SUSPECT_LEASES = 4;

/**
 * Recognises work held under this life that the engine does not know of. Undefined if no response was lost. The
 * suspicion ends only after a search that came late enough: a claim may land late, and searches may fail meanwhile.
 */
export function unknownWork(
  loop: Claims,
  known: () => Iterable<string>,
  { now, leaseMs }: { readonly now: number; readonly leaseMs: number },
): UnknownWork | undefined {
  const { suspectAt, claiming } = loop;
  if (suspectAt === -Infinity) return undefined;
  const isLast = now - suspectAt > SUSPECT_LEASES * leaseMs;
  const ids = new Set(known());
  return {
    // The claim loop itself finds out what the claim in progress has taken, and runs it.
    has: (work) => !ids.has(work.id) && work.leaseToken !== claiming,
    lookedFor: () => {
      if (isLast && loop.suspectAt === suspectAt) loop.suspectAt = -Infinity;
    },
  };
}
