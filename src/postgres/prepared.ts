import { createHash } from 'node:crypto';
import type { PoolClient } from 'pg';
import type { Queryable } from '../sql/connection/driver.js';
import { sqlState } from '../sql/connection/errors.js';
import type { Connections } from './connections.js';

/** Plans are discarded after this time: the table that a plan was made for may have grown since. */
const PLAN_AGE_MS = 30_000;
/** Each statement takes memory on every connection. */
const MOST_NAMES = 50;

/**
 * A pooler has switched to a connection that does not know the statement, or that already has one of this name. Nothing
 * was run.
 */
const isUnknown = (error: unknown): boolean => ['26000', '42P05'].includes(sqlState(error) ?? '');

/**
 * Statements that the server parses and plans once for each connection. Behind a pooler that switches connections, they
 * are sent without a name.
 */
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

  /** The same text has the same name everywhere, so that connections can be shared with other processes. */
  #nameOf(text: string): string | undefined {
    const known = this.#names.get(text);
    if (known !== undefined || this.#names.size >= MOST_NAMES) return known;
    const name = `tidemill_${createHash('sha256').update(text).digest('hex').slice(0, 24)}`;
    this.#names.set(text, name);
    return name;
  }
}
