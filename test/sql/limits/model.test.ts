import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { memory } from '../../../src/memory/index.js';
import type { KeyRule, NewJob, Store } from '../../../src/store/port.js';
import { aClaim, aJob, ahead, anInstance, done, opened } from '../../support/port.js';
import { freshEmbedded, freshPostgres, useEmbedded } from '../../support/stores.js';

const KEYS = ['', 'a', 'b', 'c'];
const KEEP = () => ({ completed: 1e9, failed: 1e9, cancelled: 1e9 });

type Step =
  | { readonly kind: 'enqueue'; readonly key: number; readonly later: boolean; readonly priority: number }
  | { readonly kind: 'claim' }
  | {
      readonly kind: 'settle' | 'hand back' | 'retry later' | 'fail' | 'cancel' | 'remove' | 'retry';
      readonly which: number;
    }
  | { readonly kind: 'reschedule'; readonly which: number; readonly later: boolean };

const which = fc.nat({ max: 50 });
const steps = fc.array(
  fc.oneof(
    {
      weight: 5,
      arbitrary: fc.record({
        kind: fc.constant('enqueue' as const),
        key: fc.nat({ max: KEYS.length - 1 }),
        later: fc.integer({ min: 0, max: 5 }).map((dice) => dice === 0),
        priority: fc.integer({ min: -1, max: 1 }),
      }),
    },
    { weight: 4, arbitrary: fc.constant({ kind: 'claim' as const }) },
    {
      weight: 4,
      arbitrary: fc.record({
        kind: fc.constantFrom(
          'settle' as const,
          'settle' as const,
          'hand back' as const,
          'retry later' as const,
          'fail' as const,
          'cancel' as const,
          'remove' as const,
          'retry' as const,
        ),
        which,
      }),
    },
    {
      weight: 1,
      arbitrary: fc.record({ kind: fc.constant('reschedule' as const), which, later: fc.boolean() }),
    },
  ),
  { minLength: 5, maxLength: 40 },
);

const rules = fc.oneof(
  fc.record({ concurrency: fc.integer({ min: 1, max: 3 }) }),
  fc.constant<KeyRule>({}),
  fc.constant<KeyRule>({ rate: { limit: 2, perMs: 3_600_000, burst: 2 } }),
  fc.constant<KeyRule>({ concurrency: 2, rate: { limit: 5, perMs: 3_600_000, burst: 5 } }),
  fc.constantFrom<KeyRule>(
    { order: 'fifo', whileRetrying: 'hold' },
    { order: 'fifo', whileRetrying: 'pass' },
  ),
);

/** Goes the same way on a store, and says what it saw. Jobs have numbers, since the ids of two stores differ. */
class Way {
  readonly #store: Store;
  readonly #rule: KeyRule;
  readonly #ids: string[] = [];
  readonly #instance = anInstance();
  readonly #base = Date.now() - 3_600_000;
  #times = 0;

  constructor(store: Store, rule: KeyRule) {
    this.#store = store;
    this.#rule = rule;
  }

  async take(step: Step): Promise<void> {
    const { jobs } = this.#store;
    if (step.kind === 'enqueue') return this.#enqueue(step);
    if (step.kind === 'claim') return;
    const id = this.#ids[step.which % Math.max(1, this.#ids.length)];
    if (id === undefined) return;
    if (step.kind === 'cancel') await jobs.cancel(id, KEEP);
    else if (step.kind === 'remove') await jobs.remove(id);
    else if (step.kind === 'retry') await jobs.retry(id, this.#nextTime(1_800_000));
    else if (step.kind === 'reschedule')
      await jobs.reschedule(id, step.later ? ahead(900_000) : this.#nextTime(0));
    else await this.#end(id, step.kind);
  }

  /** Claims all that may be claimed, and returns the numbers of the jobs that run then. */
  async claimAll(): Promise<readonly unknown[]> {
    while ((await this.#claim(20)) > 0);
    const page = { field: 'createdAt', direction: 1, limit: 200 } as const;
    const { jobs } = await this.#store.jobs.find({ status: ['processing'] }, page);
    return jobs.map(({ data }) => Number(data)).sort((a, b) => a - b);
  }

  async #enqueue({ key, later, priority }: Extract<Step, { kind: 'enqueue' }>): Promise<void> {
    const place = this.#ids.length;
    const limitKey = KEYS[key] ?? '';
    // A producer that gives no key gives no place in the order either, so there every job has a key.
    const isBare = limitKey === '' && place % 2 === 0 && this.#rule.order === undefined;
    const job: NewJob = aJob({
      data: place,
      nextRunAt: later ? ahead(900_000) : new Date(this.#base + place * 1_000),
      ...(isBare ? {} : { limitKey }),
      ...(this.#rule.order === undefined ? { priority } : { limitOrder: String(place).padStart(6, '0') }),
    });
    const [inserted] = await this.#store.jobs.insert([job]);
    this.#ids.push(inserted?.job.id ?? '');
  }

  /** No two jobs are due at the same time: ids would decide between them. */
  #nextTime(after: number): Date {
    this.#times += 1;
    return new Date(this.#base + after + this.#times * 10 + 5);
  }

  async #claim(max: number): Promise<number> {
    const limits = new Map([['work', { max, rank: 0, of: 1, keys: this.#rule }]]);
    const { jobs } = await this.#store.jobs.claim(aClaim(this.#instance, { limits, total: max }));
    return jobs.length;
  }

  async #end(id: string, how: Step['kind']): Promise<void> {
    const { jobs } = this.#store;
    const job = await jobs.get(id);
    if (job?.status !== 'processing') return;
    if (how === 'hand back') await jobs.settle([done(job, { status: 'pending', set: {} })]);
    else if (how === 'retry later')
      await jobs.settle([done(job, { status: 'pending', set: { nextRunAt: ahead(900_000), failCount: 1 } })]);
    else await jobs.settle([done(job, how === 'fail' ? { status: 'failed' } : {})]);
  }
}

/**
 * Single claims may differ in whose turn it is. But whatever came before, once both stores have claimed all that their
 * rule allows, the same jobs run.
 */
function agrees(open: () => Store): void {
  it('runs the same jobs as the model, after any series of steps', async () => {
    await fc.assert(
      fc.asyncProperty(rules, steps, async (rule, series) => {
        const [model, real] = [new Way(await opened(memory()), rule), new Way(await opened(open()), rule)];
        for (const step of series) {
          if (step.kind === 'claim') expect(await real.claimAll()).toEqual(await model.claimAll());
          await model.take(step);
          await real.take(step);
        }
        expect(await real.claimAll()).toEqual(await model.claimAll());
      }),
      { numRuns: 25 },
    );
  });
}

describe('claims by keys compared with the memory store on PostgreSQL', () => {
  agrees(() => freshPostgres());
});

describe('claims by keys compared with the memory store on PGlite', () => {
  useEmbedded();
  agrees(() => freshEmbedded());
});
