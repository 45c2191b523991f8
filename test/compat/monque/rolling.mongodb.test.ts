/** Processes with Monque and with `tidemill/compat/monque` on one collection. */
import { ObjectId } from 'mongodb';
import { describe, expect, it } from 'vitest';
import type { Monque } from '../../../src/compat/monque/index.js';
import { gate, until } from '../../support/mills.js';
import { freshUri, rawClient } from '../../support/stores.js';
import { aMonque, next } from './a-monque.js';
import { claimedAt, olderJob, OlderWorker } from './older-worker.js';

const db = () => rawClient(freshUri()).db();

describe('a rolling switch from Monque', () => {
  it('runs each job once, whoever wrote it and whoever runs it', async () => {
    const shared = db();
    const older = new OlderWorker(shared.collection('monque_jobs'), 'older');
    await older.createIndexes();
    const { monque, jobs } = await aMonque(shared);
    await jobs.insertMany(Array.from({ length: 60 }, (_, n) => olderJob('x', { n })));
    for (let n = 60; n < 120; n += 1) await monque.enqueue('x', { n });
    const ran: number[] = [];
    monque.register<{ n: number }>('x', (job) => void ran.push(job.data.n), { concurrency: 2 });
    monque.start();
    let byOlder = 0;
    while ((await jobs.countDocuments({ status: { $ne: 'completed' } })) > 0) {
      const job = await older.claim('x');
      if (job === null) continue;
      byOlder += 1;
      ran.push((job['data'] as { n: number }).n);
      expect(await older.complete(job)).toBe(true);
    }
    expect(ran.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 120 }, (_, n) => n));
    expect([byOlder > 0, byOlder < 120]).toEqual([true, true]);
    const held = {
      $or: [{ claimedBy: { $ne: null } }, { lastHeartbeat: { $ne: null } }, { lockedAt: { $ne: null } }],
    };
    expect(await jobs.countDocuments(held)).toBe(0);
  });

  it('retries here what failed there, and there what failed here', async () => {
    const { monque, jobs } = await aMonque(db());
    const older = new OlderWorker(jobs, 'older');
    const attempts: number[] = [];
    monque.register('x', (job) => {
      attempts.push(job.failCount);
      if (job.failCount < 2) throw new Error('not yet');
    });
    const { _id } = await monque.enqueue('x', {});
    expect(await older.fail((await older.claim('x'))!, 'there', new Date())).toBe(true);
    monque.start();
    const { error, job } = await next<{ error: Error; job: { failCount: number } }>(monque, 'job:fail');
    expect([error.message, job.failCount]).toEqual(['not yet', 2]);
    await next(monque, 'job:complete');
    expect(attempts).toEqual([1, 2]);
    expect(await monque.getJob(_id)).toMatchObject({ status: 'completed', failCount: 2 });
  });

  it('an older process sees that a job of the same unique key is live, and this one sees theirs', async () => {
    const { monque, jobs } = await aMonque(db());
    await new OlderWorker(jobs, 'older').createIndexes();
    const ours = await monque.enqueue('x', { by: 'us' }, { uniqueKey: 'a' });
    await jobs.insertOne(olderJob('x', { by: 'them' }, { uniqueKey: 'b' }));
    const again = await jobs.findOneAndUpdate(
      { name: 'x', uniqueKey: 'a', status: { $in: ['pending', 'processing'] } },
      { $setOnInsert: olderJob('x', {}) },
      { upsert: true, returnDocument: 'after' },
    );
    expect(again?._id).toEqual(ours._id);
    expect((await monque.enqueue('x', {}, { uniqueKey: 'b' })).data).toEqual({ by: 'them' });
  });

  it('goes on with a schedule that an older process made, once', async () => {
    const { monque, jobs } = await aMonque(db());
    const older = new OlderWorker(jobs, 'older');
    const ran: unknown[] = [];
    monque.register('daily', (job) => void ran.push(job.data));
    const due = new Date(Date.now() - 1_000);
    const fields = { repeatInterval: '0 0 1 1 *', uniqueKey: 'k', nextRunAt: due };
    const { insertedId } = await jobs.insertOne(olderJob('daily', { a: 1 }, fields));
    expect((await monque.schedule('0 0 1 1 *', 'daily', { a: 1 }, { uniqueKey: 'k' }))._id).toEqual(
      insertedId,
    );
    expect(await jobs.countDocuments()).toBe(1);
    monque.start();
    await until('it is planned anew', async () => (await monque.getJob(insertedId))!.nextRunAt > new Date());
    expect(ran).toEqual([{ a: 1 }]);
    expect((await monque.getJob(insertedId))!.status).toBe('pending');
    await monque.stop();
    // And the older one goes on with it after that.
    await jobs.updateOne({ _id: insertedId }, { $set: { nextRunAt: due } });
    const claimed = (await older.claim('daily'))!;
    expect(claimed._id).toEqual(insertedId);
    expect(await older.planned(claimed, new Date(2100, 0, 1))).toBe(true);
    expect(await monque.getJob(insertedId)).toMatchObject({
      status: 'pending',
      nextRunAt: new Date(2100, 0, 1),
    });
  });

  it('takes over what a dead older process left, and leaves alone what one works on', async () => {
    const { monque, jobs } = await aMonque(db(), { leaseDuration: '1s' });
    const older = new OlderWorker(jobs, 'older');
    const [dead, alive] = [await monque.enqueue('x', { n: 1 }), await monque.enqueue('x', { n: 2 })];
    await older.claim('x');
    await older.claim('x');
    const silent = new Date(Date.now() - 100_000);
    await jobs.updateOne({ _id: dead._id }, { $set: { lockedAt: silent, lastHeartbeat: silent } });
    await jobs.updateOne({ _id: alive._id }, { $set: { lockedAt: silent } });
    const ran: unknown[] = [];
    monque.register<{ n: number }>('x', (job) => void ran.push(job.data.n));
    const recovered = next<{ count: number }>(monque, 'stale:recovered');
    monque.start();
    expect(await recovered).toEqual({ count: 1 });
    await until('it ran', () => ran.length === 1);
    expect(ran).toEqual([1]);
    expect(await monque.getJob(alive._id)).toMatchObject({ status: 'processing', claimedBy: 'older' });
  });

  it('a job that an older process took back while it ran here stays pending, and runs again', async () => {
    const { monque, jobs } = await aMonque(db());
    const older = new OlderWorker(jobs, 'older');
    const end = gate();
    monque.register('x', () => end.promise);
    const { _id } = await monque.enqueue('x', {});
    monque.start();
    await next(monque, 'job:start');
    // As if it had run for longer than the `lockTimeout` of the older process, which then initializes.
    await jobs.updateOne({ _id }, { $set: { lockedAt: new Date(0), nextRunAt: new Date(2100, 0, 1) } });
    await older.recover(1_800_000);
    end.open();
    await monque.stop();
    expect(await monque.getJob(_id)).toMatchObject({ status: 'pending' });
    expect(await monque.rescheduleJob(_id.toHexString(), new Date())).not.toBeNull();
    expect((await older.claim('x'))?._id).toEqual(_id);
  });

  it('an older process keeps what it claimed while the run here went on', async () => {
    const { monque, jobs } = await aMonque(db());
    const older = new OlderWorker(jobs, 'older');
    const end = gate();
    monque.register('x', () => end.promise);
    const { _id } = await monque.enqueue('x', {});
    monque.start();
    await next(monque, 'job:start');
    await jobs.updateOne({ _id }, { $set: { lockedAt: new Date(0), nextRunAt: new Date(2100, 0, 1) } });
    await older.recover(1_800_000);
    await jobs.updateOne({ _id }, { $set: { status: 'processing', ...claimedAt('older', new Date()) } });
    end.open();
    await monque.stop();
    const stored = await jobs.findOne({ _id });
    expect(stored).toMatchObject({ status: 'processing', claimedBy: 'older' });
    expect(await older.complete(stored!)).toBe(true);
  });

  /** Fails a job here once; it waits for its next attempt then, with the mark of its last holder. */
  const failedOnce = async (monque: Monque): Promise<ObjectId> => {
    monque.register('x', () => Promise.reject(new Error('not yet')));
    const { _id } = await monque.enqueue('x', {});
    const failed = next(monque, 'job:fail');
    monque.start();
    await failed;
    return _id;
  };

  it('leaves alone what a live older process retries, after the process that tried it here has restarted', async () => {
    const shared = db();
    const before = await aMonque(shared, { baseRetryInterval: 3_600_000 });
    const [alive, dead] = [await failedOnce(before.monque), new ObjectId()];
    await before.monque.stop();
    const silent = new Date(Date.now() - 100_000);
    const { jobs } = before;
    await jobs.insertOne(
      olderJob('y', {}, { _id: dead, status: 'processing', ...claimedAt('older', silent) }),
    );
    const beating = { ...claimedAt('older', silent), lastHeartbeat: new Date() };
    await jobs.updateOne({ _id: alive }, { $set: { status: 'processing', ...beating } });
    const { monque } = await aMonque(shared, { leaseDuration: '1s' });
    monque.register('y', () => undefined);
    const recovered = next<{ count: number }>(monque, 'stale:recovered');
    monque.start();
    expect(await recovered).toEqual({ count: 1 });
    expect(await monque.getJob(alive)).toMatchObject({
      status: 'processing',
      claimedBy: 'older',
      failCount: 1,
    });
  });

  it('takes over what a dead older process left, if the process here had tried it before', async () => {
    const { monque, jobs } = await aMonque(db(), { leaseDuration: '1s', baseRetryInterval: 3_600_000 });
    const _id = await failedOnce(monque);
    const silent = new Date(Date.now() - 100_000);
    const recovered = next<{ count: number }>(monque, 'stale:recovered');
    await jobs.updateOne({ _id }, { $set: { status: 'processing', ...claimedAt('older', silent) } });
    expect(await recovered).toEqual({ count: 1 });
    expect(await monque.getJob(_id)).toMatchObject({ status: 'pending', failCount: 2 });
  });
});
