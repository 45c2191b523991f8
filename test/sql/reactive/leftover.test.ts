import { expect, it, vi } from 'vitest';
import { aMill, until } from '../../support/mills.js';
import { freshEmbedded, sharedEmbedded, useEmbedded } from '../../support/stores.js';

useEmbedded();

const EVERY_MS = 5_000;

it('changes of a table whose task has retired trigger at most one inspection per interval', async () => {
  const database = sharedEmbedded();
  await database.exec(
    'create table gone (id serial primary key); create table kept (id integer primary key)',
  );
  const schema = 'leftover';
  const start = async (collection: string): Promise<ReturnType<typeof aMill>> => {
    const mill = aMill(freshEmbedded({ schema }));
    let isOver = false;
    mill.on('reconcile:complete', () => (isOver = true));
    await mill.reactiveTask({ task: collection, collection, debounce: 0, handler: () => undefined });
    await mill.start();
    await until('it was looked at', () => isOver);
    return mill;
  };
  await (await start('gone')).stop();
  await database.exec(
    `update ${schema}.task_states set state = state || jsonb_build_object('lastSeenAt', now() - interval '8 days')`,
  );
  const mill = await start('kept');
  let written = 0;
  /** One change of each, in one look; the second shows that it is over. */
  const write = async (): Promise<void> => {
    written += 1;
    await database.exec(`insert into gone default values; insert into kept values (${String(written)})`);
    await until('it was planned', async () => {
      const text = `select count(*)::int as n from ${schema}.tasks where task = 'kept'`;
      const { rows } = await database.query<{ n: number }>(text);
      return rows[0]?.n === written;
    });
  };
  await write();
  const queries = vi.spyOn(database, 'query');
  const began = performance.now();
  for (let times = 0; times < 10; times += 1) await write();
  const elapsedMs = performance.now() - began;
  const inspections = queries.mock.calls.filter(([text]) => text.includes(`'isChild'`)).length;
  queries.mockRestore();
  expect(inspections).toBeLessThanOrEqual(1 + Math.floor(elapsedMs / EVERY_MS));
  await mill.stop();
});
