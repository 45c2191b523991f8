import { expect, it } from 'vitest';
import { memory } from '../../../src/memory/index.js';
import { aMill, gate, until } from '../../support/mills.js';

it('leaves jobs of many names for which it has no slot to an idle instance', async () => {
  const store = memory();
  const end = gate();
  const names = Array.from({ length: 32 }, (_, n) => `name-${String(n)}`);
  const [busy, idle] = [aMill(store, { concurrency: 10 }), aMill(store, { concurrency: 200 })];
  for (const mill of [busy, idle])
    for (const name of names) mill.job(name, { concurrency: 5 }, () => end.promise);
  await busy.enqueueMany(names.flatMap((name) => Array.from({ length: 5 }, () => ({ name }))));
  await busy.start();
  await until('its slots are taken', () => busy.health().running === 10);
  expect(busy.health().buffered).toBe(0);
  await idle.start();
  await until('the other runs the rest', () => idle.health().running === 150);
  end.open();
});

it('hands back prefetched jobs when long jobs turn up among short ones', async () => {
  const store = memory();
  const end = gate();
  const [first, second] = [aMill(store), aMill(store)];
  const ran = { first: 0, second: 0 };
  const handler = (mill: 'first' | 'second') => async (job: { data: { long?: boolean } }) => {
    ran[mill] += 1;
    if (job.data.long === true) await end.promise;
  };
  first.job('mail', handler('first'));
  second.job('mail', handler('second'));
  await first.enqueueMany(Array.from({ length: 200 }, () => ({ name: 'mail', data: {} })));
  await first.start();
  await until('it has learned that they are short', () => ran.first === 200);
  const long = Array.from({ length: 5 }, () => ({ name: 'mail', data: { long: true } }));
  const short = Array.from({ length: 450 }, () => ({ name: 'mail', data: {} }));
  await first.enqueueMany([...long, ...short]);
  await until('long ones take its slots', () => first.health().running === 5);
  await second.start();
  await until('the rest runs elsewhere', () => ran.second === 450);
  expect(first.health().buffered).toBe(0);
  const { items } = await first.jobs.find({ status: 'completed' }, { limit: 1_000 });
  expect(items.every(({ failCount }) => failCount === 0)).toBe(true);
  end.open();
});
