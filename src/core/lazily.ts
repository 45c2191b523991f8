/** A part of the program that is loaded on first use. */
export interface Lazy<T> {
  /** Later calls return the same promise, so that they cost no trip to the module loader. */
  (): Promise<T>;
  /** The part, once it is loaded. */
  readonly loaded?: T;
}

/** Loads that are in progress. Modules are loaded by turns of the event loop, which no virtual clock drives. */
const loading = new Set<Promise<unknown>>();

/** Defers `load`, an `import()`, to the first call. After a failure the next call tries again. */
export function lazily<T>(load: () => Promise<T>): Lazy<T> {
  let promise: Promise<T> | undefined;
  const lazy: { (): Promise<T>; loaded?: T } = () => (promise ??= begin());
  const begin = async (): Promise<T> => {
    const loads = load();
    loading.add(loads);
    try {
      return (lazy.loaded = await loads);
    } catch (error) {
      promise = undefined;
      throw error;
    } finally {
      loading.delete(loads);
    }
  };
  return lazy;
}

/** Resolves when no part is being loaded; undefined if none is. */
export const untilLoaded = (): Promise<unknown> | undefined =>
  loading.size === 0 ? undefined : Promise.allSettled(loading);

/** Returns what `choose` makes of a part, once for all calls; loads the part on the first one. */
export function chosen<T, P>(load: Lazy<T>, choose: (loaded: T) => P): Lazy<P> {
  let made: { readonly part: P } | undefined;
  const of = (loaded: T): P => (made ??= { part: choose(loaded) }).part;
  const lazy = async (): Promise<P> => of(await load());
  return Object.defineProperty(lazy, 'loaded', {
    get: () => (load.loaded === undefined ? undefined : of(load.loaded)),
  });
}

/** The methods that may wait until their part is loaded: those that return promises. */
export type Deferrable<P> = {
  [K in keyof P]-?: NonNullable<P[K]> extends (...args: never) => Promise<unknown> ? K : never;
}[keyof P];

/**
 * Returns the named methods of an object that is loaded on the first call of one of them. Once it is loaded, a call
 * reaches it at once, as if it had been there from the start.
 */
export function deferred<P, const K extends Deferrable<P>>(load: Lazy<P>, methods: readonly K[]): Pick<P, K> {
  const call = (on: P, method: K, args: readonly unknown[]): unknown =>
    (on[method] as (...args: readonly unknown[]) => unknown)(...args);
  const through =
    (method: K) =>
    (...args: readonly unknown[]): unknown => {
      const { loaded } = load;
      return loaded === undefined ? load().then((on) => call(on, method, args)) : call(loaded, method, args);
    };
  return Object.fromEntries(methods.map((method) => [method, through(method)])) as unknown as Pick<P, K>;
}

/** As `deferred`, for one port of a part. */
export const deferredPort = <T, N extends keyof T, const K extends Deferrable<T[N]>>(
  load: Lazy<T>,
  port: N,
  methods: readonly K[],
): Pick<T[N], K> => {
  const chosenPort = chosen(load, (loaded) => loaded[port]);
  return deferred(chosenPort, methods);
};
