import { expect, it } from 'vitest';
import { startedUp } from '../reactive/probes.js';
import { thingsFixture } from '../reactive/things-fixture.js';
import { scraped } from './text.js';

it('only the leader reports the headroom between the oplog and the resume point', async () => {
  const { mill, docs } = thingsFixture();
  const leader = mill({ monitoring: { scrapeMode: 'local' } });
  const ran: unknown[] = [];
  await leader.reactiveTask({
    task: 'sync',
    collection: 'things',
    debounce: 0,
    handler: ({ docId }) => ran.push(docId),
  });
  await startedUp(leader, 'sync');
  await docs.insertOne({ _id: 1 });
  const values = await scraped(leader);
  expect(values.get('tidemill_history_headroom_seconds')).toBeGreaterThan(0);
  expect(values.get('tidemill_planner_leaders')).toBe(1);
  // An instance that does not lead reports none of it.
  const other = mill({ monitoring: { scrapeMode: 'local' } });
  await other.start();
  expect(
    [...(await scraped(other)).keys()].filter((name) => /planner|history|change_stream/u.test(name)),
  ).toEqual([]);
});
