import { StoreError } from '../../src/core/errors.js';
import type { Store } from '../../src/store/port.js';

type Reach = 'up' | 'down' | 'read-only';

/** What a database that accepts no writes still answers. */
const READS: ReadonlySet<string> = new Set([
  'look',
  'list',
  'describe',
  'get',
  'getMany',
  'find',
  'count',
  'held',
]);
const PORTS: ReadonlySet<PropertyKey> = new Set(['jobs', 'instances', 'locks']);

/** A store that its users cannot reach for a while: calls fail before they reach the database. */
export class Outage {
  reach: Reach = 'up';
  readonly store: Store;

  constructor(store: Store) {
    this.store = this.#front(store, (port) => this.#guarded(port));
  }

  #front(store: Store, guarded: (port: object) => object): Store {
    const ports = new Map<PropertyKey, object>();
    return new Proxy(store, {
      get: (target, key) => {
        const value: unknown = Reflect.get(target, key, target);
        if (typeof value === 'function') return value.bind(target) as unknown;
        if (!PORTS.has(key) || typeof value !== 'object' || value === null) return value;
        if (!ports.has(key)) ports.set(key, guarded(value));
        return ports.get(key);
      },
    });
  }

  #guarded(port: object): object {
    return new Proxy(port, {
      get: (target, key) => {
        const value: unknown = Reflect.get(target, key, target);
        if (typeof value !== 'function') return value;
        return (...given: unknown[]): unknown => {
          const passes = this.reach === 'up' || (this.reach === 'read-only' && READS.has(String(key)));
          if (passes) return Reflect.apply(value, target, given) as unknown;
          return Promise.reject(new StoreError(`${String(key)}: connection refused`, { transient: true }));
        };
      },
    });
  }
}
