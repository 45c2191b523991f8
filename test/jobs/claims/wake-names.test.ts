import { expect, it } from 'vitest';
import { memory, type MemoryStore } from '../../../src/memory/index.js';
import { aMill, rarely, until } from '../../support/mills.js';
import { gate } from '../../../src/testing/conformance/fixtures.js';

/** A store that counts what an instance asks it about jobs, with the names of each peek. */
function counting(): { store: MemoryStore; asked: { claims: number; peeks: (readonly string[])[] } } {
  const store = memory();
  const asked = { claims: 0, peeks: [] as (readonly string[])[] };
  const { jobs } = store;
  const [claim, peek] = [jobs.claim.bind(jobs), jobs.peek.bind(jobs)];
  Object.assign(jobs, {
    claim: (request: Parameters<typeof claim>[0]) => {
      asked.claims += 1;
      return claim(request);
    },
    peek: (names: readonly string[]) => {
      asked.peeks.push(names);
      return peek(names);
    },
  });
  return { store, asked };
}

it('jobs of names that an instance does not run make it ask the store nothing', async () => {
  const { store, asked } = counting();
  const worker = aMill(store, { pollInterval: rarely });
  worker.job('own', () => 'ran');
  await worker.start();
  expect(await worker.jobs.result((await worker.enqueue('own', {})).id)).toBe('ran');
  await until('it waits', () => worker.health().running === 0 && asked.peeks.length > 0);
  const before = { claims: asked.claims, peeks: asked.peeks.length };
  const producer = aMill(store);
  for (const mill of [producer, worker]) for (let n = 0; n < 5; n += 1) await mill.enqueue('foreign', {});
  await new Promise((resolve) => setImmediate(resolve));
  expect({ claims: asked.claims, peeks: asked.peeks.length }).toEqual(before);
  expect(await producer.jobs.result((await producer.enqueue('own', {})).id)).toBe('ran');
});

it('jobs for which an instance has no slot make it ask the store once one is free', async () => {
  const { store, asked } = counting();
  const worker = aMill(store, { concurrency: 1 });
  const [held, producer] = [gate(), aMill(store)];
  worker.job('slow', () => held.promise);
  worker.job('own', () => 'ran');
  await worker.start();
  await producer.enqueue('slow', {});
  await until('it runs', () => worker.health().running === 1);
  await new Promise((resolve) => setTimeout(resolve, 20));
  const before = { claims: asked.claims, peeks: asked.peeks.length };
  const jobs = [];
  for (let n = 0; n < 5; n += 1) jobs.push(await producer.enqueue('own', {}));
  await new Promise((resolve) => setImmediate(resolve));
  expect({ claims: asked.claims, peeks: asked.peeks.length }).toEqual(before);
  held.open();
  for (const { id } of jobs) expect(await producer.jobs.result(id)).toBe('ran');
});

it('peeks pass the same list of names on until a handler is added', async () => {
  const { store, asked } = counting();
  const worker = aMill(store);
  for (let n = 0; n < 1_000; n += 1) worker.job(`name-${String(n)}`, () => 'ran');
  await worker.start();
  const producer = aMill(store);
  for (let n = 0; n < 3; n += 1)
    expect(await producer.jobs.result((await producer.enqueue(`name-${String(n)}`, {})).id)).toBe('ran');
  expect(new Set(asked.peeks.filter((names) => names.length > 0)).size).toBe(1);
  worker.job('added', () => 'ran');
  expect(await producer.jobs.result((await producer.enqueue('added', {})).id)).toBe('ran');
  expect(asked.peeks.at(-1)).toHaveLength(1_001);
});
