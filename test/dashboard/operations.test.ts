import { afterEach, expect, it, vi } from 'vitest';
import { memory } from '../../src/memory/index.js';
import type { Operation } from '../../src/dashboard/contract.js';
import { aMill, gate, until } from '../support/mills.js';
import { aClient } from './client.js';

afterEach(() => vi.useRealTimers());

it('a late progress update does not overwrite the end of a bulk action', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  const mill = aMill(memory());
  const client = aClient(mill);
  const [work, slow] = [gate<{ count: number }>(), gate()];
  vi.spyOn(mill.jobs, 'retryMany').mockReturnValue(work.promise);
  const amend = mill.audit.amend.bind(mill.audit);
  const amending = vi.spyOn(mill.audit, 'amend').mockImplementationOnce(async (id, change) => {
    await slow.promise;
    return amend(id, change);
  });
  const count = await client.post<{ asOf: string }>('count', { kind: 'jobs', query: 'status=failed' });
  const begun = await client.post<Operation>('actions', {
    action: 'retry',
    target: { kind: 'jobs', query: 'status=failed' },
    asOf: count.body.asOf,
  });
  vi.advanceTimersByTime(10_000);
  await until('it says that it is at work', () => amending.mock.calls.length === 1);
  work.open({ count: 3 });
  await new Promise((resolve) => setImmediate(resolve));
  slow.open();
  const now = (): Promise<Operation> => client.get<Operation>(`operations/${begun.body.id}`);
  await until('both were written', () => amending.mock.calls.length === 2);
  await until('it has ended', async () => (await now()).state === 'done');
  expect(await now()).toMatchObject({ state: 'done', done: 3 });
});
