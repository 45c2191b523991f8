import { startMongo } from '@tidemill/servers';
import { MongoClient } from 'mongodb';
import { describe, expect, it } from 'vitest';
import { ownClient } from '../../src/mongodb/client.js';
import { mongodb } from '../../src/mongodb/index.js';
import { behindProxy } from '../support/flaky-proxy.js';
import { aMill, until } from '../support/mills.js';
import { aJob, opened } from '../support/port.js';
import { freshUri } from '../support/stores.js';

describe("timeouts of the store's own MongoClient", () => {
  const limits = (uri: string) => {
    const { socketTimeoutMS, maxIdleTimeMS, connectTimeoutMS } = ownClient(uri).options;
    return { socketTimeoutMS, maxIdleTimeMS, connectTimeoutMS };
  };

  it("the store's own client closes connections that do not answer or are idle", () => {
    const defaults = { socketTimeoutMS: 30_000, maxIdleTimeMS: 20_000, connectTimeoutMS: 10_000 };
    expect(limits('mongodb://host/app')).toEqual(defaults);
  });

  it("timeouts in the URI override those of the store's own client", () => {
    const uri = 'mongodb://host/app?sockettimeoutms=0&connectTimeoutMS=5000&maxIdleTimeMS=1000';
    expect(limits(uri)).toEqual({ socketTimeoutMS: 0, maxIdleTimeMS: 1_000, connectTimeoutMS: 5_000 });
  });
});

describe('frozen MongoDB connections', () => {
  it('replaces frozen connections and keeps running jobs', async () => {
    const { proxy, uri } = await behindProxy();
    const mill = aMill(mongodb({ uri: `${uri}&socketTimeoutMS=2000` }));
    mill.on('error', () => undefined);
    const ran = new Set<string>();
    mill.job('x', ({ id }) => void ran.add(id));
    await mill.start();
    const { id: first } = await mill.enqueue('x', {});
    await until('the first job has run', () => ran.has(first));
    proxy.freezeWorking();
    const { id } = await until('a job is accepted', () =>
      mill.enqueue('x', {}, { id: 'second' }).catch(() => undefined),
    );
    await until('the next job has run', () => ran.has(id));
  });

  it('needs one retry to get past eight frozen idle connections', async () => {
    const { proxy, uri } = await behindProxy();
    const store = await opened(mongodb({ uri: `${uri}&socketTimeoutMS=3000&maxIdleTimeMS=2000` }));
    await Promise.all(Array.from({ length: 8 }, () => store.jobs.insert([aJob()])));
    proxy.freezeWorking();
    expect(await store.jobs.insert([aJob()])).toMatchObject([{ outcome: 'created' }]);
    expect(await store.jobs.count({})).toBe(9);
  });

  it('reports an unknown outcome for an enqueue on a frozen connection without retries', async () => {
    const { proxy, uri, direct } = await behindProxy();
    const store = await opened(mongodb({ uri: `${uri}&socketTimeoutMS=2000&retryWrites=false` }));
    await store.jobs.insert([aJob()]);
    proxy.freezeWorking();
    const failed = await store.jobs.insert([aJob()]).catch((error: unknown) => error);
    expect(failed).toMatchObject({ code: 'STORE', transient: true, outcomeUnknown: true });
    await using client = new MongoClient(direct);
    expect(await client.db().collection('tidemill_jobs').countDocuments()).toBe(1);
  });

  it('builds indexes for longer than the socket timeout', async () => {
    await using server = await startMongo({ failPoints: true });
    await using client = new MongoClient(server.uri);
    await client.db('admin').command({
      configureFailPoint: 'failCommand',
      mode: { times: 1 },
      data: { failCommands: ['createIndexes'], blockConnection: true, blockTimeMS: 4_000 },
    });
    const uri = new URL(freshUri(server.uri));
    uri.searchParams.set('socketTimeoutMS', '1500');
    const store = await opened(mongodb({ uri: uri.href }));
    expect(await store.indexFaults()).toEqual([]);
  });
});
