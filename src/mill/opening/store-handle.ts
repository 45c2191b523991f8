import type { Timer } from '../../core/clock.js';
import { openStore, storeKindOf } from './open-store.js';
import { reactiveOf } from '../../reactive/reactive-of.js';
import type { Store, TransactionOf } from '../../store/port.js';

export interface StoreHandleOptions {
  /** The collection of coordination documents, if the mill has that option; otherwise the store decides. */
  readonly globals: string | undefined;
  /** Awaited by the first `open`. */
  readonly ready: Promise<unknown>;
  /** Called by every `open`, also if the store was open already. */
  readonly opened: (store: Store) => void;
  /** True while the mill is started. */
  readonly isStarted: () => boolean;
  /** Called before the store is released again after a late call. */
  readonly leaving: () => Promise<void>;
}

/** A call after a stop opens the store again; without a further call, it is released after this long. */
const LATE_MS = 5_000;

/**
 * The store of one mill. It opens on the first call that needs it, and again after a stop. Nothing would release it then,
 * and its connections would keep the process alive, so it is released by itself a while after the last late call.
 */
export class StoreHandle<S extends Store> {
  readonly #given: S | string;
  readonly #options: StoreHandleOptions;
  #resolved: Promise<Store<TransactionOf<S>>> | undefined;
  #opened: Store<TransactionOf<S>> | undefined;
  #isReady = false;
  #wasReleased = false;
  #late: Timer | undefined;

  constructor(given: S | string, options: StoreHandleOptions) {
    this.#given = given;
    this.#options = options;
  }

  get kind(): string {
    return typeof this.#given === 'string' ? storeKindOf(this.#given) : this.#given.kind;
  }

  /** The store object, unless the mill was given a URL. */
  get given(): S | undefined {
    return typeof this.#given === 'string' ? undefined : this.#given;
  }

  /** The store, once it was open; it may be closed by now. */
  get opened(): Store<TransactionOf<S>> | undefined {
    return this.#opened;
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
    this.#opened = store;
    opened(store);
    if (this.#wasReleased) this.#releaseLater(store);
    return store;
  }

  async release(): Promise<void> {
    this.#late?.cancel();
    this.#wasReleased = true;
    const store = await this.#resolved?.catch(() => undefined);
    await store?.release(this);
  }

  #releaseLater(store: Store<TransactionOf<S>>): void {
    this.#late?.cancel();
    if (this.#options.isStarted()) return;
    const late = store.clock.timer(LATE_MS, () => {
      const released = this.#releaseLate(late).catch(() => undefined);
      store.clock.track?.(released);
    });
    // Connections keep the process alive until then; a store without any need not.
    late.unref?.();
    this.#late = late;
  }

  /** Does nothing if the mill was started meanwhile, or if another late call has set another timer. */
  async #releaseLate(late: Timer): Promise<void> {
    const { isStarted, leaving } = this.#options;
    if (isStarted()) return;
    await leaving();
    if (!isStarted() && this.#late === late) await this.release();
  }
}
