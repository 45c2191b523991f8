import { randomUUID } from 'node:crypto';
import type { Collection, Document } from 'mongodb';
import type { Payload } from '../contenders/contender.js';

const due = { v: 1, name: 'noop', status: 'pending', $expr: { $lte: ['$nextRunAt', '$$NOW'] } };
const WEEK_MS = 604_800_000;

/** Reads the ids at the head of the queue, updates them with a token, and returns what the token holds. */
async function claim(jobs: Collection, size: number, leaseToken: string): Promise<Document[]> {
  const head = await jobs
    .find(due, {
      projection: { _id: 1 },
      sort: { priority: -1, nextRunAt: 1, _id: 1 },
      limit: size,
      hint: 'tidemill_claim',
      batchSize: size + 1,
    })
    .toArray();
  const _id = { $in: head.map((row) => row._id) };
  await jobs.updateMany(
    { _id, status: 'pending' },
    {
      $set: { status: 'processing', claimedBy: 'raw', leaseToken },
      $currentDate: { lockedAt: true, updatedAt: true },
    },
  );
  return jobs.find({ _id, leaseToken }, { batchSize: size + 1 }).toArray();
}

/** One update for the whole batch. */
async function complete(jobs: Collection, held: readonly Document[], leaseToken: string): Promise<void> {
  await jobs.updateMany(
    { _id: { $in: held.map((row) => row['_id']) }, leaseToken, status: 'processing' },
    {
      $set: { status: 'completed', lockedAt: null, expiresAt: new Date(Date.now() + WEEK_MS) },
      $unset: { claimedBy: 1 },
      $currentDate: { finishedAt: true, updatedAt: true },
    },
  );
}

/** Batched claims and batched completion, one batch after the other. */
export async function rawProcess(
  jobs: Collection,
  count: number,
  size: number,
  run: (data: Payload) => void,
): Promise<void> {
  for (let done = 0; done < count;) {
    const token = randomUUID();
    const held = await claim(jobs, size, token);
    for (const row of held) run(row['data'] as Payload);
    await complete(jobs, held, token);
    done += held.length;
  }
}
