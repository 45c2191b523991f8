import type { Tidemill } from '../../../index.js';
import { DIGESTS, type Shop, type ShopCounts } from './shop.js';

/** The part of an SQL store's transaction that is used here. */
interface Queryable {
  query(text: string, values?: (string | number | null)[]): Promise<{ readonly rows: readonly unknown[] }>;
}

export class SqlShop implements Shop {
  readonly orders: string;
  readonly digests: string;
  readonly #mill: Tidemill;
  readonly #schema: string;

  constructor(mill: Tidemill, space: string) {
    this.#mill = mill;
    this.#schema = `${space}_shop`;
    this.orders = `${this.#schema}.orders`;
    this.digests = `${this.#schema}.digests`;
  }

  async prepare(): Promise<void> {
    await this.#run(`create schema ${this.#schema}`);
    await this.#run(
      `create table ${this.orders} (id integer generated always as identity primary key, status text not null, total integer not null)`,
    );
    await this.#run(`create index on ${this.orders} (status, id)`);
    await this.#run(
      `create table ${this.digests} (customer text primary key, sleep_until timestamptz, "interval" text, sent integer not null default 0)`,
    );
    await this.#run(`create index on ${this.digests} (sleep_until)`);
    for (const [customer, interval] of DIGESTS)
      await this.#run(`insert into ${this.digests} values ($1::text, now(), $2::text)`, [customer, interval]);
  }

  async place(count: number): Promise<void> {
    const order = `select 'placed', 5 + floor(random() * 95) from generate_series(1, $1::integer)`;
    await this.#run(`insert into ${this.orders} (status, total) ${order}`, [count]);
  }

  async pay(count: number): Promise<void> {
    const oldest = `select id from ${this.orders} where status = 'placed' order by id limit $1::integer for update skip locked`;
    await this.#run(`update ${this.orders} set status = 'paid' where id in (${oldest})`, [count]);
  }

  async ship(id: unknown): Promise<void> {
    await this.#run(`update ${this.orders} set status = 'shipped' where id = $1::integer`, [Number(id)]);
  }

  async send(id: unknown): Promise<void> {
    await this.#run(`update ${this.digests} set sent = sent + 1 where customer = $1::text`, [String(id)]);
  }

  async counts(): Promise<ShopCounts> {
    const of = (status: string): string =>
      `(select count(*)::integer from ${this.orders} where status = '${status}') as ${status}`;
    const statuses = ['placed', 'paid', 'shipped'].map(of).join(', ');
    const [row] = await this.#run(
      `select ${statuses}, (select sum(sent)::integer from ${this.digests}) as sent`,
    );
    return row as ShopCounts;
  }

  async drop(): Promise<void> {
    await this.#run(`drop schema if exists ${this.#schema} cascade`);
  }

  #run(text: string, values: (string | number | null)[] = []): Promise<readonly unknown[]> {
    return this.#mill.withTransaction(
      async (transaction) => (await (transaction as Queryable).query(text, values)).rows,
    );
  }
}
