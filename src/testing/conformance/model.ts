/** A store beside a model of a few lines: whatever workers and operators do, both end up the same. */
import type { JobRecord, JobStatus } from '../../core/records/job.js';
import type { Registration, Store } from '../../store/port.js';
import { expect } from './expect.js';
import { aClaim, aJob, aRegistration, done } from './fixtures.js';

/** What a worker, from 0 to 2, or an operator does next. */
export type Step =
  | { readonly do: 'enqueue'; readonly key: string | null; readonly priority: number }
  | { readonly do: 'claim'; readonly worker: number; readonly max: number }
  | { readonly do: 'complete' | 'retry later' | 'hand back'; readonly worker: number }
  | { readonly do: 'crash' | 'wake the dead'; readonly worker: number }
  | { readonly do: 'cancel' | 'retry'; readonly job: number }
  | { readonly do: 'time passes'; readonly ms: number };

interface ModelJob {
  readonly id: string;
  readonly key: string | null;
  readonly priority: number;
  status: JobStatus;
  holder: number | null;
  failCount: number;
  asked: boolean;
}

const KEEP = (): { completed: number; failed: number; cancelled: number } => ({
  completed: 1e9,
  failed: 1e9,
  cancelled: 1e9,
});

/** What the store should hold, in a few lines; and the store, told the same. */
export class Model {
  readonly #jobs: ModelJob[] = [];
  readonly #workers: Registration[] = [];
  /** What each worker believes to hold, dead or not. */
  readonly #hands: JobRecord[][] = [[], [], []];
  readonly #ghosts: JobRecord[] = [];

  constructor(
    private readonly store: Store,
    /** Of its jobs: several models may follow each other on one store. */
    private readonly name: string,
    private readonly pass: (ms: number) => Promise<void> = () => Promise.resolve(),
  ) {}

  /** Takes the steps one by one, and compares in the end. */
  async play(plan: readonly Step[]): Promise<void> {
    for (let n = 0; n < 3; n += 1) await this.#register(n);
    for (const step of plan) await this.#step(step);
    await this.#compare();
  }

  async #register(n: number): Promise<void> {
    const registration = aRegistration({ names: [this.name], leaseMs: 1e8 });
    this.#workers[n] = registration;
    await this.store.instances.register(registration);
  }

  async #step(step: Step): Promise<void> {
    switch (step.do) {
      case 'enqueue':
        return this.#enqueue(step.key, step.priority);
      case 'claim':
        return this.#claim(step.worker, step.max);
      case 'complete':
      case 'retry later':
      case 'hand back':
        return this.#settle(step.worker, step.do);
      case 'crash':
        return this.#crash(step.worker);
      case 'wake the dead':
        for (const ghost of this.#ghosts)
          expect(await this.store.jobs.settle([done(ghost)])).toEqual(['lost']);
        return;
      case 'cancel':
        return this.#cancel(step.job);
      case 'retry':
        return this.#retry(step.job);
      case 'time passes':
        return this.pass(step.ms);
    }
  }

  #live(key: string): ModelJob | undefined {
    return this.#jobs.find(
      (job) => job.key === key && (job.status === 'pending' || job.status === 'processing'),
    );
  }

  async #enqueue(key: string | null, priority: number): Promise<void> {
    const rival = key === null ? undefined : this.#live(key);
    const now = new Date(this.store.clock.now() - 1);
    const asked = aJob({
      name: this.name,
      priority,
      nextRunAt: now,
      createdAt: now,
      ...(key === null ? {} : { uniqueKey: key }),
    });
    const [inserted] = await this.store.jobs.insert([asked]);
    expect(inserted?.outcome).toBe(rival === undefined ? 'created' : 'existing');
    if (rival !== undefined) expect(inserted?.job.id).toBe(rival.id);
    else
      this.#jobs.push({
        id: inserted?.job.id ?? '',
        key,
        priority,
        status: 'pending',
        holder: null,
        failCount: 0,
        asked: false,
      });
  }

  async #claim(n: number, max: number): Promise<void> {
    const pending = this.#jobs.filter((job) => job.status === 'pending');
    const { jobs } = await this.store.jobs.claim(
      aClaim(this.#workers[n] as Registration, { names: [this.name], max }),
    );
    expect(jobs).toHaveLength(Math.min(max, pending.length));
    const least = Math.min(...jobs.map((job) => job.priority), Infinity);
    const left = pending.filter((job) => !jobs.some((taken) => taken.id === job.id));
    expect(left.every((job) => job.priority <= least)).toBe(true);
    for (const job of jobs) {
      const model = this.#jobs.find((other) => other.id === job.id) as ModelJob;
      expect(model.status).toBe('pending');
      Object.assign(model, { status: 'processing', holder: n });
      this.#hands[n]?.push(job);
    }
  }

  async #settle(n: number, how: 'complete' | 'retry later' | 'hand back'): Promise<void> {
    const job = this.#hands[n]?.shift();
    if (job === undefined) return;
    const model = this.#jobs.find((other) => other.id === job.id) as ModelJob;
    const set =
      how === 'retry later'
        ? { failCount: model.failCount + 1, nextRunAt: new Date(this.store.clock.now() - 1) }
        : {};
    const status = how === 'complete' ? 'completed' : 'pending';
    const expected = status === 'pending' && model.asked ? 'changed' : 'settled';
    expect(await this.store.jobs.settle([done(job, { status, set })])).toEqual([expected]);
    if (expected === 'changed') {
      expect(
        await this.store.jobs.settle([done(job, { status: 'cancelled', set: { cancelRequestedAt: null } })]),
      ).toEqual(['settled']);
      Object.assign(model, { status: 'cancelled', holder: null, asked: false });
    } else Object.assign(model, { status, holder: null, failCount: set.failCount ?? model.failCount });
  }

  /** The lease ends, somebody else fences the instance and hands its work on. */
  async #crash(n: number): Promise<void> {
    const dead = this.#workers[n] as Registration;
    await this.store.instances.renew({ ...dead, leaseMs: -1 });
    expect(await this.store.instances.fence(dead)).toBeDefined();
    expect(await this.store.instances.renew(dead)).toBe('lost');
    const held = await this.store.jobs.heldBy(dead, 100);
    expect(held.map((job) => job.id).sort()).toEqual((this.#hands[n] ?? []).map((job) => job.id).sort());
    const back = held.map((job) =>
      job.cancelRequestedAt === undefined
        ? done(job, {
            status: 'pending' as const,
            set: { failCount: job.failCount + 1, nextRunAt: new Date(this.store.clock.now() - 1) },
            by: 'reclaimer' as const,
          })
        : done(job, {
            status: 'cancelled' as const,
            set: { cancelRequestedAt: null },
            by: 'reclaimer' as const,
          }),
    );
    if (back.length > 0) expect(new Set(await this.store.jobs.settle(back))).toEqual(new Set(['settled']));
    for (const job of held) {
      const model = this.#jobs.find((other) => other.id === job.id) as ModelJob;
      if (model.asked) Object.assign(model, { status: 'cancelled', holder: null, asked: false });
      else Object.assign(model, { status: 'pending', holder: null, failCount: model.failCount + 1 });
    }
    this.#ghosts.push(...(this.#hands[n] ?? []).splice(0));
    await this.store.instances.bury(dead);
    await this.#register(n);
  }

  async #cancel(index: number): Promise<void> {
    const model = this.#jobs[index];
    if (model === undefined) return;
    const before = model.status;
    const outcome = before === 'pending' ? 'cancelled' : before === 'processing' ? 'requested' : 'finished';
    const answer = await this.store.jobs.cancel(model.id, KEEP);
    if (model.status === 'pending') model.status = 'cancelled';
    else if (model.status === 'processing') model.asked = true;
    expect([before, answer?.outcome, answer?.job.status]).toEqual([before, outcome, model.status]);
  }

  async #retry(index: number): Promise<void> {
    const model = this.#jobs[index];
    if (model === undefined) return;
    const answer = await this.store.jobs.retry(model.id, new Date(this.store.clock.now() - 1));
    const over = model.status === 'failed' || model.status === 'cancelled';
    const live = model.key !== null && this.#live(model.key) !== undefined;
    const expected = over
      ? live
        ? 'live'
        : 'retried'
      : model.status === 'completed'
        ? 'finished'
        : 'unfinished';
    expect(answer?.outcome).toBe(expected);
    if (expected === 'retried') Object.assign(model, { status: 'pending', failCount: 0, asked: false });
  }

  async #compare(): Promise<void> {
    for (const model of this.#jobs) {
      const job = await this.store.jobs.get(model.id);
      expect([model.id, job?.status, job?.failCount]).toEqual([model.id, model.status, model.failCount]);
      expect(job?.claimedBy).toBe(
        model.holder === null ? undefined : this.#workers[model.holder]?.instanceId,
      );
    }
    for (const key of ['a', 'b']) {
      const live = this.#jobs.filter(
        (job) => job.key === key && (job.status === 'pending' || job.status === 'processing'),
      );
      expect(live.length).toBeLessThanOrEqual(1);
    }
    for (const instance of this.#workers) await this.store.instances.deregister(instance);
  }
}
