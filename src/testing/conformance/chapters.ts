/** What the suite is made of: chapters of facts, and the scene that each fact plays in. */
import { Tidemill, type TidemillOptions } from '../../index.js';
import type { Store } from '../../store/port.js';

/**
 * What a store may do without:
 * - `transactions`: `transaction`, and the `transaction` arguments of `insert`, `settleIn` and `heldIn`
 * - `schedules`: recurring jobs
 * - `locks`: `renew`, `release` and fences of locks, for `withLock`; `acquire` is needed in any case
 * - `metrics`: `metrics`, and `depths` of jobs
 * - `audit`: the log of actions by hand
 * - `reactive`: reactive tasks
 * - `limits`: `limits`, and `keys` and `notAfter` of claims
 */
export type Capability =
  'transactions' | 'schedules' | 'locks' | 'metrics' | 'audit' | 'reactive' | 'limits' | 'replacing';

export const CAPABILITIES: readonly Capability[] = [
  'transactions',
  'schedules',
  'locks',
  'metrics',
  'audit',
  'reactive',
  'limits',
  'replacing',
];

/** What a fact has to play with. All of it is closed after the fact. */
interface Scene {
  /** A store with nothing in it, that is not open yet; mills open it. */
  readonly store: Store;
  /** Opens the store until the end of the fact, for calls to its port. */
  readonly opened: () => Promise<Store>;
  /** A mill on the store. Silent, unless the fact listens. */
  readonly aMill: (options?: Partial<TidemillOptions>) => Tidemill;
  /** Facts that are partly about a capability ask whether it is there. */
  readonly has: (capability: Capability) => boolean;
}

/** One sentence about stores, and its proof. */
export interface Fact {
  readonly title: string;
  readonly needs: readonly Capability[];
  readonly prove: (scene: Scene) => Promise<void>;
}

/** How facts become tests. */
export interface Runner {
  /** `it` of the test runner. Facts that are left out are passed with `skip`. */
  readonly it: (title: string, options: { readonly skip: boolean }, body: () => Promise<void>) => unknown;
  /** Returns a store with nothing in it and not opened yet. Called once for each fact. */
  readonly open: () => Store | Promise<Store>;
  /** Ends what `open` began, such as a temporary file; called after each fact. Default: nothing is done. */
  readonly close?: (store: Store) => void | Promise<void>;
  /** What the store does without: the facts that need it are left out. Default: none. */
  readonly without?: readonly Capability[];
}

export interface Chapter {
  readonly title: string;
  readonly facts: readonly Fact[];
}

export function fact(title: string, prove: Fact['prove']): Fact;
export function fact(title: string, needs: readonly Capability[], prove: Fact['prove']): Fact;
export function fact(title: string, ...rest: readonly unknown[]): Fact {
  const [needs, prove] = rest.length === 1 ? [[], rest[0]] : rest;
  return { title, needs: needs as Fact['needs'], prove: prove as Fact['prove'] };
}

/** `needs` of a chapter counts for all of its facts. */
export function chapter(about: string | Omit<Fact, 'prove'>, facts: readonly Fact[]): Chapter {
  const { title, needs } = typeof about === 'string' ? { title: about, needs: [] } : about;
  return { title, facts: facts.map((one) => ({ ...one, needs: [...needs, ...one.needs] })) };
}

/** What a fact needs and the store does without. */
export const missing = ({ needs }: Fact, without: readonly Capability[]): readonly Capability[] =>
  needs.filter((capability) => without.includes(capability));

/** Makes a test of each fact. */
export function registerFacts({ facts }: Chapter, runner: Runner): void {
  const { it, open, close, without = [] } = runner;
  for (const one of facts)
    it(one.title, { skip: missing(one, without).length > 0 }, async () => {
      const store = await open();
      try {
        await proveOn(store, without, one);
      } finally {
        await close?.(store);
      }
    });
}

async function proveOn(store: Store, without: readonly Capability[], { prove }: Fact): Promise<void> {
  const mills: Tidemill[] = [];
  const holder = {};
  try {
    await prove({
      store,
      has: (capability) => !without.includes(capability),
      opened: async () => {
        await store.acquire(holder);
        return store;
      },
      aMill: (options = {}) => {
        const mill = new Tidemill({ store, logger: false, ...options });
        mills.push(mill);
        return mill;
      },
    });
  } finally {
    await Promise.all(mills.map((mill) => mill.stop({ timeout: 0 })));
    await store.release(holder);
  }
}
