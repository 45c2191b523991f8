import type { Store } from '../../index.js';

/** The two roles of the demo. Each runs as a process of its own (processes.ts), or all run in this one (parts.ts). */
export type Role = 'worker' | 'producer';

/** What a worker or a producer reports. */
export type Report =
  | { readonly kind: 'ready' }
  | { readonly kind: 'repeat' | 'retry' | 'pulse' | 'recovered' | 'handedBack'; readonly count: number };

type Tell = (report: Report) => void;

/** What a worker or a producer needs, whichever process it runs in. */
export interface PartOptions {
  readonly name: string;
  readonly store: Store;
  readonly space: string;
  readonly tell: Tell;
}

/** A worker or a producer that has started. */
export interface Part {
  stop(timeout: '0s' | '4s'): Promise<void>;
}

export interface CrewOptions {
  readonly report: (from: string, report: Report) => void;
  /** Called when one ends that was not asked to. */
  readonly died: (name: string, why: string) => void;
}

export interface Crew {
  /** How an accident ends workers here, for a sentence about several of them. */
  readonly accident: 'killed' | 'stopped in the middle of their work';
  /** The names of those that have reported to be ready. */
  alive(role: Role): string[];
  /** Returns the name of the new one. */
  start(role: Role): string;
  /** Ends a worker while it works; returns what happened to it, in words. */
  strike(name: string): string;
  /** Asks all of a role to stop, and waits until they have. */
  stop(role: Role): Promise<void>;
}

/** The names of the members of a role that have reported to be ready. */
export const aliveIn = (members: ReadonlyMap<string, { readonly ready: boolean }>, role: Role): string[] =>
  [...members].filter(([name, { ready }]) => ready && name.startsWith(role)).map(([name]) => name);

/** Numbers each role separately: worker-1, worker-2, producer-1. */
export function namer(): (role: Role) => string {
  const numbers = { worker: 0, producer: 0 };
  return (role) => `${role}-${String((numbers[role] += 1))}`;
}
