import { expect, it } from 'vitest';
import { mongodb } from '../../src/mongodb/index.js';
import { until } from '../support/mills.js';
import { aClaim, aJob, anInstance, opened } from '../support/port.js';
import { freshUri, rawClient } from '../support/stores.js';

const uri = freshUri();
const client = rawClient(uri);

it('a heartbeat on MongoDB writes to jobs that were held for longer than a beat, and to no others', async () => {
  const store = await opened(mongodb({ uri }));
  const stored = client.db().collection('tidemill_jobs');
  const instance = anInstance();
  await store.jobs.insert([aJob({ data: 'long' })]);
  await store.jobs.claim({ ...aClaim(instance, { max: 1 }), heartbeatMs: 1 });
  await store.jobs.insert([aJob({ data: 'new' })]);
  await store.jobs.claim({ ...aClaim(instance, { max: 1 }), heartbeatMs: 3_600_000 });
  const before = await stored.find({}, { sort: { data: 1 } }).toArray();
  await until('the long one was refreshed', async () => {
    await store.jobs.heartbeat?.(instance, []);
    const long = await stored.findOne({ data: 'long' });
    return Number(long?.['lastHeartbeat']) > Number(before[0]?.['lastHeartbeat']);
  });
  expect(await stored.findOne({ data: 'new' })).toEqual(before[1]);
});
