import { createHash } from 'node:crypto';
import type { PoolClient } from 'pg';
import type { Queryable } from '../sql/connection/driver.js';
import { sqlState } from '../sql/connection/errors.js';
import type { Connections } from './connections.js';

/** A plan that was made for a small table is not kept for long: the table may have grown. */
const PLAN_AGE_MS = 30_000;
/** Each takes memory of every connection. */
const MOST_NAMES = 50;

/** A pooler in between has given us another connection than the one that knows the statement; it was not run. */
const isUnknown = (error: unknown): boolean => ['26000', '42P05'].includes(sqlState(error) ?? '');

/** Statements that the server parses and plans once for each connection. */
export class Prepared implements Queryable {
  readonly #connections: Pick<Connections<PoolClient>, 'use'>;
  readonly #limitMs: () => number;
  readonly #planAgeMs: number;
  readonly #names = new Map<string, string>();
  readonly #plannedAt = new WeakMap<PoolClient, number>();
  #refused = false;

  constructor(
    connections: Pick<Connections<PoolClient>, 'use'>,
    limitMs: () => number,
    planAgeMs: number = PLAN_AGE_MS,
  ) {
    this.#connections = connections;
    this.#limitMs = limitMs;
    this.#planAgeMs = planAgeMs;
  }

  async query(text: string, values: (string | number | null)[] = []): ReturnType<Queryable['query']> {
    const name = this.#refused ? undefined : this.#nameOf(text);
    if (name === undefined) return this.#unnamed(text, values);
    try {
      return await this.#connections.use(async (client) => {
        await this.#forgetOldPlans(client);
        return client.query({ name, text, values });
      }, this.#limitMs());
    } catch (error) {
      if (!isUnknown(error)) throw error;
      this.#refused = true;
      return this.#unnamed(text, values);
    }
  }

  #unnamed(text: string, values: (string | number | null)[]): ReturnType<Queryable['query']> {
    return this.#connections.use((client) => client.query(text, values), this.#limitMs());
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
