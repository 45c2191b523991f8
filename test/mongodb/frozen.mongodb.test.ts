import { startMongo } from '@tidemill/servers';
import { MongoClient } from 'mongodb';
import { describe, expect, it } from 'vitest';
import { ownClient } from '../../src/mongodb/client.js';
import { mongodb } from '../../src/mongodb/index.js';
import { behindProxy } from '../support/flaky-proxy.js';
import { aMill, until } from '../support/mills.js';
import { aJob, opened } from '../support/port.js';
import { freshUri } from '../support/stores.js';

describe('the limits of a client that the store opens', () => {
  const limits = (uri: string) => {
    const { socketTimeoutMS, maxIdleTimeMS, connectTimeoutMS } = ownClient(uri).options;
    return { socketTimeoutMS, maxIdleTimeMS, connectTimeoutMS };
  };

  it('give up a connection that does not answer, and those that have been idle as long', () => {
    const defaults = { socketTimeoutMS: 30_000, maxIdleTimeMS: 20_000, connectTimeoutMS: 10_000 };
    expect(limits('mongodb://host/app')).toEqual(defaults);
  });

  it('are those of the uri if it names them', () => {
    const uri = 'mongodb://host/app?sockettimeoutms=0&connectTimeoutMS=5000&maxIdleTimeMS=1000';
    expect(limits(uri)).toEqual({ socketTimeoutMS: 0, maxIdleTimeMS: 1_000, connectTimeoutMS: 5_000 });
  });
});

describe('connections that freeze', () => {
  it('are replaced, and jobs go on', async () => {
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

  it('cost one retry, however many of them are idle', async () => {
    const { proxy, uri } = await behindProxy();
    const store = await opened(mongodb({ uri: `${uri}&socketTimeoutMS=3000&maxIdleTimeMS=2000` }));
    await Promise.all(Array.from({ length: 8 }, () => store.jobs.insert([aJob()])));
    proxy.freezeWorking();
    expect(await store.jobs.insert([aJob()])).toMatchObject([{ outcome: 'created' }]);
    expect(await store.jobs.count({})).toBe(9);
  });

  it('leave the outcome of an enqueue unknown if it is not retried', async () => {
    const { proxy, uri, direct } = await behindProxy();
    const store = await opened(mongodb({ uri: `${uri}&socketTimeoutMS=2000&retryWrites=false` }));
    await store.jobs.insert([aJob()]);
    proxy.freezeWorking();
    const failed = await store.jobs.insert([aJob()]).catch((error: unknown) => error);
    expect(failed).toMatchObject({ code: 'STORE', transient: true, outcomeUnknown: true });
    await using client = new MongoClient(direct);
    expect(await client.db().collection('tidemill_jobs').countDocuments()).toBe(1);
  });

  it('do not end the building of indexes that takes longer than an answer may', async () => {
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
