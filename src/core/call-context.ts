import { AsyncLocalStorage } from 'node:async_hooks';

/**
 * One for all: from its first use on, each `AsyncLocalStorage` takes time from every promise of the process, also after
 * whoever made it is gone.
 */
const contexts = new AsyncLocalStorage<ReadonlyMap<object, unknown>>();

/** Tells code which call it is inside of, however many awaits lie between the two. */
export class CallContext<T> {
  run<R>(value: T, work: () => R): R {
    return contexts.run(new Map<object, unknown>([...(contexts.getStore() ?? []), [this, value]]), work);
  }

  /** What the innermost `run` around the running code was given; undefined outside of all. */
  get value(): T | undefined {
    return contexts.getStore()?.get(this) as T | undefined;
  }
}
