import { randomBytes } from 'node:crypto';
import { expect, inject, it } from 'vitest';
import { opened } from '../support/port.js';
import { freshPostgres, rawPool } from '../support/stores.js';
import type { ScopeRef } from '../../src/store/port.js';

const SCOPE: ScopeRef = { kind: 'shared', name: 'api' };
const LIVES = 24;
/** A read and a write, then a transaction: its begin, read, write and end. */
const MOST = 6;

it('an exchange takes a constant number of statements, however many instances ask at once', async () => {
  const pool = rawPool({ connectionString: inject('postgresStoreUrl'), max: LIVES });
  const store = await opened(freshPostgres({ pool }));
  const limits = { rate: { limit: 1_000_000, perMs: 60_000, burst: 1_000_000 } };
  await store.limits.define(SCOPE, { limits, code: null, set: null }, null);
  let statements = 0;
  const clients = await Promise.all(Array.from({ length: LIVES }, () => pool.connect()));
  for (const client of clients) {
    const query = client.query.bind(client) as (...given: unknown[]) => unknown;
    client.query = ((...given: unknown[]) => {
      statements += 1;
      return query(...given);
    }) as typeof client.query;
    client.release();
  }
  const rounds = 5;
  const lives = Array.from({ length: LIVES }, () => randomBytes(8).toString('hex'));
  await Promise.all(
    lives.map(async (life) => {
      for (let seq = 1; seq <= rounds; seq += 1) {
        const ask = { scope: SCOPE, seq, hold: 1, inUse: 0, starts: 1, withinMs: 1_000 };
        const [grant] = await store.limits.exchange(life, [ask]);
        expect(grant).toMatchObject({ starts: 1 });
      }
    }),
  );
  expect(statements / (LIVES * rounds)).toBeLessThanOrEqual(MOST);
  const { scopes } = await store.limits.read([SCOPE]);
  expect(scopes[0]?.startsInWindow).toBe(LIVES * rounds);
});
