import type { Store } from '../../src/store/port.js';

/** The store with some of its methods replaced. */
export const withParts = (store: Store, parts: Partial<Store>): Store =>
  new Proxy(store, {
    get: (target, name) => {
      const own: unknown = Reflect.get(parts, name) ?? Reflect.get(target, name, target);
      return typeof own === 'function' ? (own.bind(target) as unknown) : own;
    },
  });
