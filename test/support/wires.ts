import { describe } from 'vitest';
import { mongodb } from '../../src/mongodb/index.js';
import type { Store } from '../../src/store/port.js';
import { behindPostgresProxy, behindProxy, type FlakyProxy } from './flaky-proxy.js';
import { freshPostgres } from './stores.js';

/** A new database behind a wire that loses what it is told to. */
export interface Wire {
  readonly proxy: FlakyProxy;
  readonly store: Store;
}

const wires: Readonly<Record<string, () => Promise<Wire>>> = {
  mongodb: async () => {
    const { proxy, uri } = await behindProxy();
    return { proxy, store: mongodb({ uri }) };
  },
  postgres: async () => {
    const { proxy, url } = await behindPostgresProxy();
    return { proxy, store: freshPostgres({ url }) };
  },
};

/** Runs the same tests on every store that is reached over a network. */
export function eachWire(what: string, facts: (wire: () => Promise<Wire>) => void): void {
  for (const [name, wire] of Object.entries(wires)) describe(`${what} (${name})`, () => facts(wire));
}
