import pg from 'pg';
import { expect, inject, it, onTestFinished } from 'vitest';
import { checkedOut } from '../../src/postgres/checked-out.js';
import { borrowed } from '../../src/postgres/driver.js';

type Given = (error: Error | undefined, client: pg.PoolClient | undefined, release: () => void) => void;

/** The server ends each connection at the moment it is handed out. */
class Hasty extends pg.Pool {
  override connect(given?: Given): never {
    super.connect((error, client, release) => {
      given?.(error, client, release);
      client?.emit('error', new Error('terminated'));
    });
    return undefined as never;
  }
}

function aPool<P extends pg.Pool>(Kind: new (config: pg.PoolConfig) => P): P {
  const pool = new Kind({ connectionString: inject('postgresUrl'), max: 1 });
  onTestFinished(() => pool.end());
  return pool;
}

it('a connection that ends at the moment it is handed out breaks neither the process nor the pool', async () => {
  const driver = borrowed(aPool(Hasty));
  const pidIn = (): Promise<unknown> =>
    driver.transaction(async (on) => (await on.query('select pg_backend_pid() as pid')).rows[0]?.['pid']);
  const first = await pidIn();
  // The connection was not returned to the pool as if nothing had happened.
  expect(await pidIn()).not.toBe(first);
});

it('a pool whose connect() only returns a promise works as well', async () => {
  const pool = aPool(pg.Pool);
  const client = await checkedOut({ connect: () => pool.connect() });
  expect((await client.query('select 1 as one')).rows).toEqual([{ one: 1 }]);
  client.release();
});
