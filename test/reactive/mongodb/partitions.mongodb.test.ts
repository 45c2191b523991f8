import { describe, expect, it, onTestFinished } from 'vitest';
import { ObjectId, Timestamp, UUID } from 'mongodb';
import { mongodb } from '../../../src/mongodb/index.js';
import type { Partitioning } from '../../../src/store/reactive/partitions.js';
import type { Feed, Term } from '../../../src/store/reactive/reactive.js';
import { lowest } from '../../../src/mongodb/reactive/partitioning.js';
import { until } from '../../support/mills.js';
import { freshUri, rawClient } from '../../support/stores.js';
import { spawnInstance } from '../instances.js';
import { globalsOf, Handled } from '../mills.js';

const LEASE_MS = 3_000;

describe('partitions on MongoDB', () => {
  it('loses no change while the leaders of partitions are killed and replaced', async () => {
    const uri = freshUri();
    const client = rawClient(uri);
    const docs = client.db().collection<{ _id: number; version: number }>('docs');
    const instances = [1, 2].map(() => spawnInstance({ uri, leaseMs: LEASE_MS, partitions: 2 }));
    try {
      await until('both partitions are led by different processes', async () => {
        const rows = await globalsOf(client)
          .find({ kind: { $in: ['planner', 'planner-part'] } })
          .toArray();
        return new Set(rows.map((row) => row['life'] ?? row._id)).size === 2;
      });
      let version = 0;
      const write = async (): Promise<void> => {
        version += 1;
        await Promise.all(
          Array.from({ length: 30 }, (_, _id) =>
            docs.updateOne({ _id }, { $set: { version } }, { upsert: true }),
          ),
        );
      };
      for (const victim of [...instances]) {
        await write();
        await victim.kill();
        await write();
        instances.push(spawnInstance({ uri, leaseMs: LEASE_MS, partitions: 2 }));
        await write();
      }
      const handled = new Handled();
      await until('the last version of each document was handled', async () => {
        const runs = instances.flatMap((one) => one.handled.runs);
        handled.runs.splice(0, Infinity, ...runs.sort((a, b) => a.version - b.version));
        return (await handled.missing(client, 'docs')).length === 0;
      });
    } finally {
      await Promise.all(instances.map((one) => one.kill()));
    }
  });

  it('delivers each change in one partition, and resumes each at the time of any other', async () => {
    const uri = freshUri();
    const docs = rawClient(uri).db().collection('docs');
    const [store, holder] = [mongodb({ uri }), {}];
    await store.acquire(holder);
    onTestFinished(() => store.release(holder));
    const term: Term = { life: 'a', term: 1 };
    const open = async (index: number, token?: unknown): Promise<Feed> => {
      const { planning } = (store.reactive.partitioning as Partitioning).within({ index, of: 3 });
      const feed = await planning.openFeed({ database: undefined, collections: ['docs'], token, term });
      onTestFinished(() => feed.close());
      return feed;
    };
    await docs.insertOne({ _id: 0 as never });
    const feeds = await Promise.all([0, 1, 2].map((index) => open(index)));
    const begin = feeds[0]?.token;
    const ids = [
      ...Array.from({ length: 30 }, (_, n) => n + 1),
      ...Array.from({ length: 30 }, () => new ObjectId()),
      ...Array.from({ length: 30 }, (_, n) => ({ tenant: 'x', 2024: n })),
      ...Array.from({ length: 30 }, (_, n) => `text ${String(n)}`),
      null,
      -1.5,
      new UUID(),
    ];
    await docs.insertMany(ids.map((_id) => ({ _id: _id as never })));
    // The last change of all tells each feed that it has delivered everything before.
    await docs.drop();
    const keysOf = async (feed: Feed): Promise<{ readonly keys: string[]; readonly token: unknown }> => {
      const keys: string[] = [];
      let token: unknown;
      for (;;) {
        const event = await feed.next();
        if (event.kind === 'upheaval') return { keys, token };
        token = event.token;
        keys.push(event.change.key);
      }
    };
    const delivered = await Promise.all(feeds.map(keysOf));
    const all = delivered.flatMap(({ keys }) => keys);
    expect(all).toHaveLength(ids.length);
    expect(new Set(all).size).toBe(ids.length);
    for (const { keys } of delivered) expect(keys.length).toBeGreaterThan(20);
    // A resume point is a place in the history, whichever partition it is from.
    const again = await keysOf(await open(1, begin));
    expect(again.keys).toEqual(delivered[1]?.keys);
    // A token of an event that this partition leaves out would not be found, so a new division keeps the time.
    const [point] = Object.values(lowest([{ '': delivered[0]?.token }, { '': delivered[2]?.token }]));
    const rest = await keysOf(await open(1, point));
    expect(delivered[1]?.keys.slice(delivered[1].keys.length - rest.keys.length)).toEqual(rest.keys);
  });

  it('takes the lowest resume point of each database, and none that a partition lacks', () => {
    const at = (t: number): unknown => ({ _data: `82${t.toString(16).padStart(8, '0')}00000001` });
    const one = { ' ': at(200), sales: at(300) };
    const other = { ' ': at(100), stock: at(300) };
    expect(lowest([one, other])).toEqual({ ' ': new Timestamp({ t: 100, i: 1 }) });
    expect(lowest([one, { ...one, ' ': new Timestamp({ t: 150, i: 2 }) }])).toEqual({
      ' ': new Timestamp({ t: 150, i: 2 }),
      sales: new Timestamp({ t: 300, i: 1 }),
    });
    expect(lowest([one, { ' ': 'unreadable' }])).toEqual({});
  });
});
