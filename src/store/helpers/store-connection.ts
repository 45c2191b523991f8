/** A connection that the first holder opens, and that is to be closed after the last one. For stores. */
export class StoreConnection<C> {
  readonly #connect: () => Promise<C>;
  readonly #holders = new Set<object>();
  #opening: Promise<C> | undefined;
  #open: C | undefined;

  constructor(connect: () => Promise<C>) {
    this.#connect = connect;
  }

  /** The connection; undefined while it is closed or not open yet. */
  get current(): C | undefined {
    return this.#open;
  }

  /** True from the first call of `acquire` until nobody holds the connection. */
  get hasBegun(): boolean {
    return this.#opening !== undefined;
  }

  /** After a failure, the next call tries again. */
  async acquire(holder: object): Promise<C> {
    this.#holders.add(holder);
    const opening = (this.#opening ??= this.#connect());
    try {
      return (this.#open = await opening);
    } catch (error) {
      if (this.#opening === opening) this.#opening = undefined;
      throw error;
    }
  }

  /** Returns the connection if the caller has to close it, since nobody else holds it. */
  async release(holder: object): Promise<C | undefined> {
    this.#holders.delete(holder);
    if (this.#holders.size > 0 || this.#opening === undefined) return undefined;
    const opening = this.#opening;
    this.#opening = undefined;
    this.#open = undefined;
    return opening.catch(() => undefined);
  }
}
