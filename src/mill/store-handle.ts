import { openStore } from './open-store.js';
import { reactiveOf } from '../reactive/reactive-of.js';
import type { Store, TransactionOf } from '../store/port.js';

export interface StoreHandleOptions {
  /** Where coordination documents live, as the mill was told; else the store decides. */
  readonly globals: string | undefined;
  /** What has to have ended before the first call goes on. */
  readonly ready: Promise<unknown>;
  /** Called each time that it is open. */
  readonly opened: (store: Store) => void;
}

/** The store of one mill: opened with the first call that needs it, and again after a stop. */
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

  /** The store, where it was not given as a URL. */
  get given(): S | undefined {
    return typeof this.#given === 'string' ? undefined : this.#given;
  }

  /** The store itself, opened or not. */
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
