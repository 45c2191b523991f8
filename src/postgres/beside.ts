import type { Pool, PoolClient, PoolConfig } from 'pg';
import { sqlState } from '../sql/connection/errors.js';
import type { PostgresClient } from './client.js';
import { Connections } from './connections.js';
import { ownPool } from './own-pool.js';

/** One to listen, and one or two to renew leases. */
const SIZE = 3;
/** A user's pool may set a role on its connections; the connections opened here have only the login role. */
const INSUFFICIENT_PRIVILEGE = '42501';
/** Longer than the time from one renewal to the next. */
const IDLE_MS = 60_000;

/** A few connections beside the pool, for leases and wake-ups, which must not wait for other users of the pool. */
export interface Beside {
  readonly pool: Pool;
  readonly connections: Connections<PoolClient>;
  /** Calls the listener whenever one of these connections did not respond. */
  onSilence(listener: () => void): void;
  /**
   * Runs `work` on one of these connections. Falls back to one of `instead` if no connection can be had, for example
   * because the server has no room for one more, or if it lacks a privilege.
   */
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
