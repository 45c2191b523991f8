import { randomUUID } from 'node:crypto';
import type { Collection, Db, Document } from 'mongodb';
import { planPipeline } from '../../src/mongodb/reactive/plan/plan.js';
import { compileTask } from '../../src/reactive/definition.js';
import { SOURCE, TASK, type Data } from '../contenders/reactive/contender.js';

const { plan } = compileTask({
  task: TASK,
  collection: SOURCE,
  watchProjection: { data: 1 },
  debounce: 0,
  handler: () => undefined,
});

const due = { v: 1, task: TASK, status: 'pending', $expr: { $lte: ['$scheduledAt', '$$NOW'] } };

/**
 * Plans, claims and settles with the plain driver. Planning uses Tidemill's own statement; the rest is as plain as
 * possible.
 */
export class RawChain {
  readonly #db: Db;
  readonly #source: Collection;
  readonly #tasks: Collection;

  constructor(db: Db, source: Collection, tasks: Collection) {
    this.#db = db;
    this.#source = source;
    this.#tasks = tasks;
  }

  async process(ids: readonly unknown[], run: (data: Data) => void): Promise<void> {
    await this.plan(ids);
    for (let done = 0; done < ids.length;) {
      const token = randomUUID();
      const held = await this.#claim(ids.length, token);
      if (held.length === 0) return;
      const startedAt = new Date();
      for (const row of held) run((row['lastObservedValues'] as { data: Data }).data);
      await this.#settle(held, token, startedAt);
      done += held.length;
    }
  }

  async plan(ids: readonly unknown[]): Promise<void> {
    const place = { db: this.#db, source: this.#source, tasks: this.#tasks };
    await this.#source.aggregate(planPipeline(plan, place, ids, {})).toArray();
  }

  /** Reads the ids at the head of the queue, updates them with a token, and returns what the token holds. */
  async #claim(size: number, leaseToken: string): Promise<Document[]> {
    const head = await this.#tasks
      .find(due, {
        projection: { _id: 1 },
        sort: { scheduledAt: 1, _id: 1 },
        limit: size,
        hint: 'tidemill_due',
        batchSize: size + 1,
      })
      .toArray();
    const _id = { $in: head.map((row) => row._id) };
    await this.#tasks.updateMany(
      { _id, status: 'pending' },
      {
        $set: { status: 'processing', claimedBy: 'raw', leaseToken },
        $inc: { attempts: 1 },
        $currentDate: { lockedAt: true },
      },
    );
    return this.#tasks.find({ _id, leaseToken }, { batchSize: size + 1 }).toArray();
  }

  /** One update for the whole batch. */
  async #settle(held: readonly Document[], leaseToken: string, startedAt: Date): Promise<void> {
    const finishedAt = new Date();
    const durationMs = Number(finishedAt) - Number(startedAt);
    const entry = { attempt: 1, status: 'completed', startedAt, finishedAt, durationMs, instanceId: 'raw' };
    await this.#tasks.updateMany(
      { _id: { $in: held.map((row) => row['_id'] as never) }, leaseToken, status: 'processing' },
      {
        $set: { status: 'completed', lockedAt: null, lastSuccess: { at: finishedAt, durationMs } },
        $push: { executionHistory: { $each: [entry], $slice: -5 } } as never,
        $unset: { claimedBy: 1 },
        $currentDate: { lastFinalizedAt: true },
      },
    );
  }
}
