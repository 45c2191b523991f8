import { startMongo } from '@tidemill/servers';
import { MongoClient } from 'mongodb';
import { describe, expect, it } from 'vitest';
import { mongodb } from '../../src/mongodb/index.js';
import { aMill } from '../support/mills.js';

/** The server's own code for a statement that exceeded its maxTimeMS. */
const MAX_TIME_EXPIRED = 50;

describe('searches without an index on MongoDB', () => {
  it('find returns partial: true when its time limit was reached, and a whole page otherwise', async () => {
    await using server = await startMongo({ failPoints: true });
    const mill = aMill(mongodb({ uri: server.uri.replace('/?', '/app?') }));
    await mill.enqueueMany(['a', 'b', 'c'].map((name) => ({ name, data: {} })));
    const client = new MongoClient(server.uri);
    await client.db('admin').command({
      configureFailPoint: 'failCommand',
      mode: { times: 1 },
      data: { failCommands: ['find'], errorCode: MAX_TIME_EXPIRED },
    });
    const search = { error: 'smtp' };
    expect(await mill.jobs.find(search)).toEqual({ items: [], next: null, previous: null, partial: true });
    expect(await mill.jobs.find(search)).toEqual({ items: [], next: null, previous: null });
    await Promise.all([mill.stop(), client.close()]);
  });
});
