/** A process with Monque 1.10, as far as its records show it: how it enqueues, claims, beats and ends jobs. */
import type { Collection, Document } from 'mongodb';

export const olderJob = (name: string, data: unknown, more: object = {}): Document => {
  const now = new Date();
  const times = { nextRunAt: now, createdAt: now, updatedAt: now };
  return { name, data, status: 'pending', failCount: 0, ...times, ...more };
};

/** What a claim sets. */
export const claimedAt = (claimedBy: string, at: Date): Document => ({
  claimedBy,
  lockedAt: at,
  lastHeartbeat: at,
  heartbeatInterval: 30_000,
});

const OWNERSHIP = { lockedAt: '', claimedBy: '', lastHeartbeat: '' } as const;

export class OlderWorker {
  readonly #jobs: Collection;
  readonly #id: string;

  constructor(jobs: Collection, id: string) {
    this.#jobs = jobs;
    this.#id = id;
  }

  async createIndexes(): Promise<void> {
    const live = { uniqueKey: { $exists: true }, status: { $in: ['pending', 'processing'] } };
    await this.#jobs.createIndexes([
      { key: { status: 1, nextRunAt: 1 } },
      { key: { name: 1, uniqueKey: 1 }, unique: true, partialFilterExpression: live },
      { key: { name: 1, status: 1 } },
      { key: { createdAt: -1, _id: -1 } },
      { key: { updatedAt: -1, _id: -1 } },
      { key: { nextRunAt: -1, _id: -1 } },
      { key: { claimedBy: 1, status: 1 } },
      { key: { lastHeartbeat: 1, status: 1 } },
      { key: { name: 1, status: 1, nextRunAt: 1, claimedBy: 1 } },
      { key: { status: 1, lockedAt: 1, lastHeartbeat: 1 } },
    ]);
  }

  async claim(name: string): Promise<Document | null> {
    const now = new Date();
    return this.#jobs.findOneAndUpdate(
      { name, status: 'pending', nextRunAt: { $lte: now } },
      { $set: { status: 'processing', updatedAt: now, ...claimedAt(this.#id, now) } },
      { sort: { nextRunAt: 1 }, returnDocument: 'after' },
    );
  }

  async #end(job: Document, set: object): Promise<boolean> {
    const { matchedCount } = await this.#jobs.updateOne(
      { _id: job['_id'] as never, status: 'processing', claimedBy: this.#id },
      { $set: { updatedAt: new Date(), ...set }, $unset: OWNERSHIP },
    );
    return matchedCount === 1;
  }

  complete(job: Document): Promise<boolean> {
    return this.#end(job, { status: 'completed' });
  }

  planned(job: Document, nextRunAt: Date): Promise<boolean> {
    return this.#end(job, { status: 'pending', nextRunAt, failCount: 0 });
  }

  fail(job: Document, failReason: string, nextRunAt: Date): Promise<boolean> {
    const failCount = (job['failCount'] as number) + 1;
    return this.#end(job, { status: 'pending', failCount, failReason, nextRunAt });
  }

  /** What it does in `initialize()`. */
  async recover(lockTimeoutMs: number): Promise<void> {
    await this.#jobs.updateMany(
      { status: 'processing', lockedAt: { $lt: new Date(Date.now() - lockTimeoutMs) } },
      { $set: { status: 'pending', updatedAt: new Date() }, $unset: OWNERSHIP },
    );
  }
}
