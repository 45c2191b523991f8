import { expect, it } from 'vitest';
import { behindPostgresProxy } from '../support/flaky-proxy.js';
import { aJob, ahead, opened } from '../support/port.js';
import { freshPostgres } from '../support/stores.js';

const names = (count: number): readonly string[] =>
  Array.from({ length: count }, (_, n) => `name-${String(n)}`);

it('a peek of 10,000 names sends and reads as much as one of 101', async () => {
  const { proxy, url } = await behindPostgresProxy();
  const store = await opened(freshPostgres({ url }));
  const at = ahead(60_000);
  await store.jobs.insert(['name-7', 'name-50', 'foreign'].map((name) => aJob({ name, nextRunAt: at })));
  const cost = async (list: readonly string[]): Promise<number> => {
    const before = proxy.sent + proxy.received;
    const { nextDue } = await store.jobs.peek(list);
    expect([...nextDue.keys()].sort()).toEqual(['name-50', 'name-7']);
    return proxy.sent + proxy.received - before;
  };
  await cost(names(101));
  expect(await cost(names(10_000))).toBeLessThanOrEqual((await cost(names(101))) + 64);
});

it('a peek of many names finds its own among more foreign ones', async () => {
  const store = await opened(freshPostgres());
  const at = ahead(60_000);
  const foreign = Array.from({ length: 200 }, (_, n) =>
    aJob({ name: `foreign-${String(n)}`, nextRunAt: at }),
  );
  await store.jobs.insert([...foreign, aJob({ name: 'name-7', nextRunAt: at })]);
  expect([...(await store.jobs.peek(names(150))).nextDue]).toEqual([['name-7', at]]);
});
