import { expect, it } from 'vitest';
import { memory } from '../../src/memory/index.js';
import { virtualClock } from '../../src/testing/index.js';
import { aMill } from '../support/mills.js';

it('a pause of everything holds up reactive tasks and document schedules until it ends', async () => {
  const clock = virtualClock('2025-01-01T00:00:00Z');
  const store = memory({ clock });
  const mill = aMill(store);
  const ran: string[] = [];
  const items = store.collection('items');
  await mill.reactiveTask({ task: 'sync', collection: 'items', handler: () => void ran.push('task') });
  mill.documents({ collection: 'reminders', onDocument: () => void ran.push('document') });
  await mill.start();
  await clock.advance('5s');
  await mill.pause();
  await clock.advance('5s');
  items.insert({ _id: 'a', total: 1 });
  store.collection('reminders').insert({ sleepUntil: new Date(clock.now()) });
  await clock.advance('1m');
  expect(ran).toEqual([]);
  await mill.resume();
  await clock.advance('1m');
  expect(ran.sort()).toEqual(['document', 'task']);
});
