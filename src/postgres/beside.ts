import type { Pool, PoolClient, PoolConfig } from 'pg';
import { sqlState } from '../sql/connection/errors.js';
import type { PostgresClient } from './client.js';
import { Connections } from './connections.js';
import { ownPool } from './own-pool.js';

/** One hears, one or two renew leases. */
const SIZE = 3;
/** A pool of the user's own may set a role on each of its connections; these have the one that logged in. */
const INSUFFICIENT_PRIVILEGE = '42501';
/** Longer than it takes from one renewal to the next. */
const IDLE_MS = 60_000;

/** A few connections beside the pool, for what must not wait for those who use the pool: leases and wake-ups. */
export interface Beside {
  readonly pool: Pool;
  readonly connections: Connections<PoolClient>;
  /** Calls back whenever one of its connections did not answer. */
  onSilence(listener: () => void): void;
  /** On one of them; if there is no room on the server for one more, or it lacks a privilege, on one of `instead`. */
  ask<C extends PostgresClient, T>(
    instead: Connections<C>,
    work: (client: PostgresClient) => Promise<T>,
    limitMs: number,
  ): Promise<T>;
  end(): Promise<void>;
}

export function besideOf(config: PoolConfig): Beside {
  const settings = { max: SIZE, min: 0, idleTimeoutMillis: IDLE_MS, allowExitOnIdle: true };
  const { pool, end } = ownPool(Object.assign(config, settings));
  const listeners: (() => void)[] = [];
  const connections = new Connections<PoolClient>(pool, {
    size: Infinity,
    remedy: 'look for what keeps the server from answering',
    silent: () => {
      for (const listener of listeners) listener();
    },
  });
  return {
    pool,
    connections,
    onSilence: (listener) => void listeners.push(listener),
    ask: async (instead, work, limitMs) => {
      const client = await connections.take('own', limitMs).catch(() => undefined);
      try {
        if (client !== undefined) return await connections.ask(client, work, limitMs);
      } catch (error) {
        if (sqlState(error) !== INSUFFICIENT_PRIVILEGE) throw error;
      }
      return instead.ask(await instead.take('own', limitMs), work, limitMs);
    },
    end,
  };
}
