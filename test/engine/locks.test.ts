import { expect, it, vi } from 'vitest';
import { memory } from '../../src/memory/index.js';
import { virtualClock } from '../../src/testing/index.js';
import { aMill, gate } from '../support/mills.js';
import { opened } from '../support/port.js';

it('stop() releases a lock that is being acquired before it resolves', async () => {
  const clock = virtualClock();
  const store = await opened(memory({ clock }));
  const mill = aMill(store);
  const [acquire, release] = [store.locks.acquire.bind(store.locks), store.locks.release.bind(store.locks)];
  const [taken, answer] = [gate(), gate()];
  const order: string[] = [];
  vi.spyOn(store.locks, 'acquire').mockImplementationOnce(async (...given) => {
    const acquired = await acquire(...given);
    taken.open();
    await answer.promise;
    return acquired;
  });
  vi.spyOn(store.locks, 'release').mockImplementationOnce(async (...given) => {
    await new Promise((resolve) => setImmediate(resolve));
    const released = await release(...given);
    order.push('released');
    return released;
  });
  const refused = mill.withLock('k', () => 'never').catch((error: unknown) => error);
  await taken.promise;
  const stop = mill.stop({ timeout: 0 }).then(() => order.push('stopped'));
  await clock.advance(1);
  answer.open();
  await stop;
  expect(await refused).toMatchObject({ code: 'STOPPED' });
  expect(order).toEqual(['released', 'stopped']);
});
