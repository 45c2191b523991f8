import fc from 'fast-check';
import { expect, it } from 'vitest';
import type { JobRecord } from '../../src/core/records/job.js';
import type { OnExisting, Store } from '../../src/store/port.js';
import { existing, expiring, updating } from '../../src/testing/conformance/facts/existing.js';
import { aClaim, aJob, anInstance, done, opened } from '../support/port.js';
import { eachStore, eachStoreProves } from '../support/stores.js';

eachStoreProves(existing);
eachStoreProves(expiring);
eachStoreProves(updating);

interface ModelJob {
  readonly id: string;
  data: number;
  status: 'pending' | 'processing' | 'ended';
}

type Step =
  | { readonly do: 'keep' | 'replace' | 'reschedule' | 'debounce' }
  | { readonly do: 'claim' | 'complete' | 'retry later' | 'crash for good' }
  | { readonly do: 'cancel' | 'remove'; readonly which: 'live' | 'successor' };

const which = fc.constantFrom('live' as const, 'successor' as const);
const steps: fc.Arbitrary<Step[]> = fc.array<Step>(
  fc.oneof(
    { weight: 4, arbitrary: fc.record({ do: fc.constantFrom('replace' as const, 'debounce' as const) }) },
    { weight: 2, arbitrary: fc.record({ do: fc.constantFrom('keep' as const, 'reschedule' as const) }) },
    { weight: 4, arbitrary: fc.record({ do: fc.constant('claim' as const) }) },
    {
      weight: 4,
      arbitrary: fc.record({
        do: fc.constantFrom('complete' as const, 'retry later' as const, 'crash for good' as const),
      }),
    },
    { weight: 2, arbitrary: fc.record({ do: fc.constantFrom('cancel' as const, 'remove' as const), which }) },
  ),
  { minLength: 3, maxLength: 30 },
);

const KEPT = { completed: 1e9, failed: 1e9, cancelled: 1e9 };
let serial = 0;

/** One key of one name: at most one live job, and at most one successor, which has the newest payload. */
class KeyModel {
  readonly #name = `key-${String((serial += 1))}`;
  readonly #store: Store;
  #live: ModelJob | undefined;
  #successor: ModelJob | undefined;
  #held: JobRecord | undefined;
  #data = 0;
  /** The payload of the last call that stored one; undefined once it was cancelled or removed. */
  #newest: number | undefined;
  #ran: unknown[] = [];

  constructor(store: Store) {
    this.#store = store;
  }

  async play(plan: readonly Step[]): Promise<void> {
    for (const step of plan) {
      await this.#step(step);
      await this.#compare();
    }
    while (this.#live !== undefined) {
      if (this.#live.status === 'pending') await this.#claim();
      await this.#settle('complete');
    }
    if (this.#newest !== undefined) expect(this.#ran.at(-1)).toBe(this.#newest);
  }

  #step(step: Step): Promise<void> {
    switch (step.do) {
      case 'claim':
        return this.#claim();
      case 'complete':
      case 'retry later':
      case 'crash for good':
        return this.#settle(step.do);
      case 'cancel':
      case 'remove':
        return this.#end(step.do, step.which);
      default:
        return this.#enqueue(step.do);
    }
  }

  async #enqueue(mode: 'keep' | 'replace' | 'reschedule' | 'debounce'): Promise<void> {
    const past = new Date(this.#store.clock.now() - 1_000);
    const data = (this.#data += 1);
    const onExisting: OnExisting | undefined =
      mode === 'keep'
        ? undefined
        : mode === 'debounce'
          ? { kind: mode, waitMs: 1, maxWaitMs: 5 }
          : { kind: mode };
    const id = this.#store.jobs.newId(past);
    const job = {
      ...aJob({ name: this.#name, data, uniqueKey: 'k', nextRunAt: past, createdAt: past }),
      id,
      ...(onExisting === undefined ? {} : { onExisting }),
    };
    const [answer] = await this.#store.jobs.insert([job]);
    expect([answer?.outcome, answer?.job.id]).toEqual(this.#expected(mode, id, data));
  }

  #expected(mode: string, id: string, data: number): [string, string] {
    const live = this.#live;
    const isNew = mode === 'replace' || mode === 'debounce';
    if (live === undefined) {
      this.#live = { id, data, status: 'pending' };
      this.#newest = data;
      return ['created', id];
    }
    if (!isNew)
      return [mode === 'reschedule' && live.status === 'pending' ? 'rescheduled' : 'existing', live.id];
    this.#newest = data;
    const target = this.#successor ?? (live.status === 'pending' ? live : undefined);
    if (target !== undefined) {
      target.data = data;
      return ['replaced', target.id];
    }
    this.#successor = { id, data, status: 'pending' };
    return ['created', id];
  }

  async #claim(): Promise<void> {
    const { jobs } = await this.#store.jobs.claim(aClaim(anInstance(), { names: [this.#name] }));
    const due = this.#live?.status === 'pending' ? [this.#live] : [];
    expect(jobs.map(({ id, data }) => [id, data])).toEqual(due.map(({ id, data }) => [id, data]));
    if (this.#live === undefined || jobs[0] === undefined) return;
    this.#held = jobs[0];
    this.#live.status = 'processing';
    this.#ran.push(jobs[0].data);
  }

  async #settle(how: 'complete' | 'retry later' | 'crash for good'): Promise<void> {
    const held = this.#held;
    if (held === undefined || this.#live === undefined) return;
    this.#held = undefined;
    if (how === 'retry later') {
      const set = { failCount: 1, nextRunAt: new Date(this.#store.clock.now() - 1_000) };
      expect(await this.#store.jobs.settle([done(held, { status: 'pending', set })])).toEqual(['settled']);
      this.#live.status = 'pending';
      return;
    }
    const ending = done(
      held,
      how === 'complete' ? {} : { status: 'failed' as const, by: 'reclaimer' as const },
    );
    const [first] = await this.#store.jobs.settle([ending]);
    const releases = { name: this.#name, uniqueKey: 'k' };
    if (first === 'changed')
      expect(await this.#store.jobs.settle([{ ...ending, releases }])).toEqual(['settled']);
    else expect(first).toBe('settled');
    this.#ended();
  }

  async #end(how: 'cancel' | 'remove', target: 'live' | 'successor'): Promise<void> {
    const job = target === 'live' ? this.#live : this.#successor;
    if (job === undefined || job.status !== 'pending') return;
    if (how === 'cancel') await this.#store.jobs.cancel(job.id, () => KEPT);
    else await this.#store.jobs.remove(job.id);
    if (job.data === this.#newest) this.#newest = undefined;
    if (target === 'live') this.#ended();
    else this.#successor = undefined;
  }

  #ended(): void {
    this.#live = this.#successor;
    this.#successor = undefined;
  }

  async #compare(): Promise<void> {
    const filter = { name: [this.#name], status: ['pending', 'processing'] as const };
    const page = { field: 'createdAt', direction: 1, limit: 10 } as const;
    const { jobs } = await this.#store.jobs.find(filter, page);
    const expected = [this.#live, this.#successor].flatMap((job) => job ?? []);
    const shown = (all: readonly { id: string; data: unknown; status: string }[]): string[] =>
      all.map(({ id, data, status }) => `${id} ${String(data)} ${status}`).sort();
    expect(shown(jobs)).toEqual(shown(expected));
    expect(jobs.filter(({ uniqueKey }) => uniqueKey === 'k')).toHaveLength(this.#live === undefined ? 0 : 1);
  }
}

eachStore('sequences of jobs that replace each other', ({ open, name }) => {
  it('matches a simple model: the newest payload runs last, and one job of a key at a time', async () => {
    const store = await opened(open());
    await fc.assert(
      fc.asyncProperty(steps, (plan) => new KeyModel(store).play(plan)),
      { numRuns: name === 'memory' ? 200 : 25 },
    );
  });
});
