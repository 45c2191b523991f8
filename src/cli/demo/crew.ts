import type { Store } from '../../index.js';

/** Those who make and do the work of the demo: as processes of their own (processes.ts), or all in one (parts.ts). */
export type Role = 'worker' | 'producer';

/** What one of them tells. */
export type Report =
  | { readonly kind: 'ready' }
  | { readonly kind: 'repeat' | 'retry' | 'pulse' | 'recovered' | 'handedBack'; readonly count: number };

type Tell = (report: Report) => void;

/** What a worker or a producer needs, whichever process it lives in. */
export interface PartOptions {
  readonly name: string;
  readonly store: Store;
  readonly space: string;
  readonly tell: Tell;
}

/** A worker or a producer that has begun. */
export interface Part {
  stop(timeout: '0s' | '4s'): Promise<void>;
}

export interface CrewOptions {
  readonly report: (from: string, report: Report) => void;
  /** One ended that nobody had asked to. */
  readonly died: (name: string, why: string) => void;
}

export interface Crew {
  /** How an accident ends a worker here, for a sentence about several of them. */
  readonly accident: 'killed' | 'stopped in the midst of their work';
  /** Those that have said that they are ready. */
  alive(role: Role): string[];
  /** Answers the name of the new one. */
  start(role: Role): string;
  /** Ends a worker in the midst of its work; answers what happened to it, in words. */
  strike(name: string): string;
  /** Asks all of a role to stop, and waits until they have. */
  stop(role: Role): Promise<void>;
}

/** Counts each role by itself: worker-1, worker-2, producer-1. */
export function namer(): (role: Role) => string {
  const numbers = { worker: 0, producer: 0 };
  return (role) => `${role}-${String((numbers[role] += 1))}`;
}
