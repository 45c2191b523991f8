import { MongoClient } from 'mongodb';
import { startMongo } from '@tidemill/servers';
import { expect, it, vi } from 'vitest';

const timeout = 120_000;

it(
  'a replica set elects another primary when one is killed, and takes the killed one back',
  { timeout },
  async () => {
    await using server = await startMongo({ nodes: 3, cacheGb: 0.25 });
    await using client = await MongoClient.connect(server.uri);
    const writes = client.db('failover').collection('writes', { writeConcern: { w: 'majority' } });
    await writes.insertOne({ n: 1 });

    const first = await server.primary();
    const { pid } = first;
    first.kill('SIGKILL');
    const second = await server.primary();
    expect(second.port).not.toBe(first.port);
    await writes.insertOne({ n: 2 });

    await first.restart();
    expect(first.pid).not.toBe(pid);
    await writes.insertOne({ n: 3 }, { writeConcern: { w: 3 } });
    expect(await writes.countDocuments()).toBe(3);
    // The primary learns of the return by a heartbeat, a little later than the member itself.
    await vi.waitFor(async () => {
      const status = await client.db('admin').command({ replSetGetStatus: 1 });
      const states = (status['members'] as { stateStr: string }[]).map((member) => member.stateStr);
      expect(states.sort()).toEqual(['PRIMARY', 'SECONDARY', 'SECONDARY']);
    });
  },
);
