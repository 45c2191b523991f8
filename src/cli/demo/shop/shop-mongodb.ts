import type { Tidemill } from '../../../index.js';
import { DIGESTS, type Shop, type ShopCounts } from './shop.js';

/** The part of the driver that is used here. Its client is reached through a session. */
interface Session {
  readonly client: { db(name: string): Database };
}
interface Database {
  collection(name: string): Collection;
  dropDatabase(): Promise<unknown>;
}
interface Collection {
  createIndexes(indexes: readonly { key: object }[]): Promise<unknown>;
  insertMany(documents: object[]): Promise<unknown>;
  find(filter: object): { limit(count: number): { toArray(): Promise<{ _id: unknown }[]> } };
  updateMany(filter: object, update: object): Promise<unknown>;
  updateOne(filter: object, update: object): Promise<unknown>;
  countDocuments(filter: object): Promise<number>;
  aggregate(pipeline: object[]): { toArray(): Promise<{ sent: number }[]> };
}

export class MongoShop implements Shop {
  readonly orders = 'orders';
  readonly digests = 'digests';
  readonly #mill: Tidemill;
  readonly #space: string;

  constructor(mill: Tidemill, space: string) {
    this.#mill = mill;
    this.#space = space;
  }

  async prepare(): Promise<void> {
    const [orders, digests] = await Promise.all([
      this.#collection(this.orders),
      this.#collection(this.digests),
    ]);
    await orders.createIndexes([{ key: { status: 1 } }]);
    await digests.createIndexes([{ key: { sleepUntil: 1 } }]);
    await digests.insertMany(
      DIGESTS.map(([_id, interval]) => ({ _id, sleepUntil: new Date(), interval, sent: 0 })),
    );
  }

  async place(count: number): Promise<void> {
    const orders = await this.#collection(this.orders);
    const order = (): object => ({ status: 'placed', total: 5 + Math.floor(Math.random() * 95) });
    await orders.insertMany(Array.from({ length: count }, order));
  }

  async pay(count: number): Promise<void> {
    const orders = await this.#collection(this.orders);
    const oldest = await orders.find({ status: 'placed' }).limit(count).toArray();
    const ids = oldest.map(({ _id }) => _id);
    await orders.updateMany({ _id: { $in: ids }, status: 'placed' }, { $set: { status: 'paid' } });
  }

  async ship(id: unknown): Promise<void> {
    const orders = await this.#collection(this.orders);
    await orders.updateOne({ _id: id }, { $set: { status: 'shipped' } });
  }

  async send(id: unknown): Promise<void> {
    const digests = await this.#collection(this.digests);
    await digests.updateOne({ _id: id }, { $inc: { sent: 1 } });
  }

  async counts(): Promise<ShopCounts> {
    const [orders, digests] = await Promise.all([
      this.#collection(this.orders),
      this.#collection(this.digests),
    ]);
    const [placed = 0, paid = 0, shipped = 0] = await Promise.all(
      ['placed', 'paid', 'shipped'].map((status) => orders.countDocuments({ status })),
    );
    const [sum] = await digests.aggregate([{ $group: { _id: null, sent: { $sum: '$sent' } } }]).toArray();
    return { placed, paid, shipped, sent: sum?.sent ?? 0 };
  }

  async drop(): Promise<void> {
    await (await this.#database()).dropDatabase();
  }

  async #collection(name: string): Promise<Collection> {
    return (await this.#database()).collection(name);
  }

  /** A mill does not expose its client, but its transactions do. */
  #database(): Promise<Database> {
    return this.#mill.withTransaction(async (session) => (session as Session).client.db(this.#space));
  }
}
