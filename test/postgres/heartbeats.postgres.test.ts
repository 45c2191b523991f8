import { expect, it } from 'vitest';
import { namesIn } from '../../src/sql/schema/names.js';
import { aMill, gate, until } from '../support/mills.js';
import { opened } from '../support/port.js';
import { freshPostgres, freshSchema, rawPool } from '../support/stores.js';

const pool = rawPool();

it('a running job is not written while its holder renews its lease, and shows the last renewal as its heartbeat', async () => {
  const schema = freshSchema();
  const { jobs } = namesIn(schema);
  const mill = aMill(freshPostgres({ schema }), { leaseDuration: 3_000 });
  const release = gate();
  mill.job('long', () => release.promise);
  await mill.start();
  const { id } = await mill.enqueue('long');
  const running = (): Promise<Awaited<ReturnType<typeof mill.jobs.get>>> => mill.jobs.get(id);
  await until('it runs', async () => (await running())?.status === 'processing');
  const version = async (): Promise<unknown> =>
    (await pool.query(`select ctid, xmin, updated_at, last_heartbeat from ${jobs}`)).rows[0];
  const before = await version();
  const first = (await running())?.lastHeartbeat?.getTime() ?? 0;
  await until(
    'its holder has renewed its lease',
    async () => ((await running())?.lastHeartbeat?.getTime() ?? 0) > first,
  );
  expect(await version()).toEqual(before);
  expect(before).toMatchObject({ last_heartbeat: null });
  release.open();
  await until('it has ended', async () => (await running())?.status === 'completed');
  expect((await running())?.lastHeartbeat).toBeUndefined();
});

it('shows the heartbeat that an older program writes to its job', async () => {
  const schema = freshSchema();
  const store = await opened(freshPostgres({ schema }));
  await pool.query(`insert into ${namesIn(schema).jobs} (id, name, status, locked_at, claimed_by, lease_token, last_heartbeat)
    values ('old', 'x', 'processing', '2026-01-01T00:00:00Z', 'older', 'gone.1', '2026-01-01T00:01:00Z')`);
  expect(await store.jobs.get('old')).toMatchObject({ lastHeartbeat: new Date('2026-01-01T00:01:00Z') });
});
