import { startMongo } from '@tidemill/servers';
import { MongoClient } from 'mongodb';
import { describe, expect, it } from 'vitest';
import { mongodb } from '../../src/mongodb/index.js';
import { aMill } from '../support/mills.js';

/** The server's own code for a statement that ran into its maxTimeMS. */
const MAX_TIME_EXPIRED = 50;

describe('a search that no index serves', () => {
  it('says that it is not complete when the time limit was reached, and is whole otherwise', async () => {
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
