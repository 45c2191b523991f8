import { MongoClient } from 'mongodb';
import { describe, it } from 'vitest';
import { mongodb } from '../../src/mongodb/index.js';
import { behindProxy } from '../support/flaky-proxy.js';
import { aMill, gate } from '../support/mills.js';

describe('responses of MongoDB lost after the write succeeded', () => {
  it('hands back and runs a job from a claim that landed after its response was given up', async () => {
    const { proxy, uri, direct } = await behindProxy();
    const client = new MongoClient(direct);
    const mill = aMill(mongodb({ uri }), { leaseDuration: 600, instanceId: 'claimer' });
    const ran = gate();
    mill.job('x', () => ran.open());
    await mill.start();
    const life = (await client.db().collection('_tidemill_globals').findOne({ kind: 'instance' }))?.[
      'life'
    ] as string;
    // As if a claim of this very life had landed late: the instance holds the job without knowing it.
    await client
      .db()
      .collection('tidemill_jobs')
      .insertOne({
        v: 1,
        name: 'x',
        data: {},
        status: 'processing',
        priority: 0,
        failCount: 0,
        nextRunAt: new Date(),
        createdAt: new Date(),
        updatedAt: new Date(),
        lockedAt: new Date(Date.now() - 5_000),
        claimedBy: 'claimer',
        leaseToken: `${life}.999`,
      });
    const failed = gate();
    mill.on('error', ({ where }) => where === 'claim' && failed.open());
    proxy.picky = (request) => request.includes('tidemill_claim');
    await mill.enqueue('x', {}, { delay: '1h' });
    await failed.promise;
    proxy.picky = undefined;
    await ran.promise;
    await client.close();
  });
});
