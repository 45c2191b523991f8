import { createHash } from 'node:crypto';
import type { Pool, PoolClient } from 'pg';
import type { Queryable } from '../sql/driver.js';
import { sqlState } from '../sql/errors.js';
import { checkedOut } from './checked-out.js';

/** A plan that was made for a small table is not kept for long: the table may have grown. */
const PLAN_AGE_MS = 30_000;
/** Each takes memory of every connection. */
const MOST_NAMES = 50;

/** A pooler in between has given us another connection than the one that knows the statement; it was not run. */
const isUnknown = (error: unknown): boolean => ['26000', '42P05'].includes(sqlState(error) ?? '');

/** Statements that the server parses and plans once for each connection. */
export class Prepared implements Queryable {
  readonly #pool: Pool;
  readonly #planAgeMs: number;
  readonly #names = new Map<string, string>();
  readonly #plannedAt = new WeakMap<PoolClient, number>();
  #refused = false;

  constructor(pool: Pool, planAgeMs: number = PLAN_AGE_MS) {
    this.#pool = pool;
    this.#planAgeMs = planAgeMs;
  }

  async query(text: string, values?: (string | number | null)[]): ReturnType<Queryable['query']> {
    const name = this.#refused ? undefined : this.#nameOf(text);
    if (name === undefined) return this.#pool.query(text, values);
    try {
      return await this.#named(name, text, values);
    } catch (error) {
      if (!isUnknown(error)) throw error;
      this.#refused = true;
      return this.#pool.query(text, values);
    }
  }

  async #named(
    name: string,
    text: string,
    values: (string | number | null)[] = [],
  ): ReturnType<Queryable['query']> {
    // A connection that breaks fails the statement as well.
    const ignored = (): void => undefined;
    const client = await checkedOut<PoolClient>(this.#pool, ignored);
    try {
      await this.#forgetOldPlans(client);
      return await client.query({ name, text, values });
    } finally {
      client.removeListener('error', ignored);
      client.release();
    }
  }

  async #forgetOldPlans(client: PoolClient): Promise<void> {
    const now = performance.now();
    const plannedAt = this.#plannedAt.get(client);
    if (plannedAt !== undefined && now - plannedAt < this.#planAgeMs) return;
    if (plannedAt !== undefined) await client.query('discard plans');
    this.#plannedAt.set(client, now);
  }

  /** The same text has the same name everywhere, so that connections may be shared with other processes. */
  #nameOf(text: string): string | undefined {
    const known = this.#names.get(text);
    if (known !== undefined || this.#names.size >= MOST_NAMES) return known;
    const name = `tidemill_${createHash('sha256').update(text).digest('hex').slice(0, 24)}`;
    this.#names.set(text, name);
    return name;
  }
}
