import { openStore } from './open-store.js';
import { reactiveOf } from '../reactive/reactive-of.js';
import type { Store, TransactionOf } from '../store/port.js';

export interface StoreHandleOptions {
  /** The collection of coordination documents, if the mill has that option; otherwise the store decides. */
  readonly globals: string | undefined;
  /** Awaited by the first `open`. */
  readonly ready: Promise<unknown>;
  /** Called by every `open`, also if the store was open already. */
  readonly opened: (store: Store) => void;
}

/** The store of one mill. It opens on the first call that needs it, and again after a stop. */
export class StoreHandle<S extends Store> {
  readonly #given: S | string;
  readonly #options: StoreHandleOptions;
  #resolved: Promise<Store<TransactionOf<S>>> | undefined;
  #isReady = false;

  constructor(given: S | string, options: StoreHandleOptions) {
    this.#given = given;
    this.#options = options;
  }

  get kind(): string {
    return typeof this.#given === 'string' ? (this.#given.split(':')[0] ?? '') : this.#given.kind;
  }

  /** The store object, unless the mill was given a URL. */
  get given(): S | undefined {
    return typeof this.#given === 'string' ? undefined : this.#given;
  }

  /** Returns the store without opening it. */
  resolve(): Promise<Store<TransactionOf<S>>> {
    this.#resolved ??= (
      typeof this.#given === 'string' ? openStore(this.#given) : Promise.resolve(this.#given)
    ) as Promise<Store<TransactionOf<S>>>;
    return this.#resolved;
  }

  async open(): Promise<Store<TransactionOf<S>>> {
    const store = await this.resolve();
    const { globals, ready, opened } = this.#options;
    if (!this.#isReady) await ready;
    this.#isReady = true;
    if (globals !== undefined) reactiveOf(store).useGlobals(globals);
    await store.acquire(this);
    opened(store);
    return store;
  }

  async release(): Promise<void> {
    const store = await this.#resolved?.catch(() => undefined);
    await store?.release(this);
  }
}
