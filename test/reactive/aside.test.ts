import { describe, expect, it } from 'vitest';
import { systemClock } from '../../src/core/clock.js';
import { Aside } from '../../src/reactive/aside.js';
import type { TaskPlan } from '../../src/store/reactive.js';
import { gate, until } from '../support/mills.js';

const plan = { task: 't' } as TaskPlan;
const blocked = (id: number) => [{ id, reason: 'held', blocked: true }];

/** Documents that were set aside, and a resume point that is kept when the test says so. */
function anAside() {
  const retried: unknown[] = [];
  const [saving, saved] = [gate(), gate()];
  const aside = new Aside({
    clock: systemClock,
    stop: new AbortController().signal,
    retry: (_task, ids) => Promise.resolve(void retried.push(...ids)),
    emptied: () => {
      saving.open();
      return saved.promise;
    },
    error: () => undefined,
  });
  return { aside, retried, saving, saved };
}

describe('documents that are set aside', () => {
  it('are tried again, also where they come while the resume point of those before them is being kept', async () => {
    const { aside, retried, saving, saved } = anAside();
    aside.add(plan, blocked(1));
    await saving.promise;
    aside.add(plan, blocked(2));
    saved.open();
    await until('both were tried again', () => retried.length === 2);
    await aside.emptied();
    expect(aside.isEmpty).toBe(true);
    expect(retried).toEqual([1, 2]);
  });

  it('keep the resume point back until none is left', async () => {
    const { aside, saving, saved } = anAside();
    expect(aside.isEmpty).toBe(true);
    aside.add(plan, blocked(1));
    expect(aside.isEmpty).toBe(false);
    await saving.promise;
    expect(aside.isEmpty).toBe(false);
    saved.open();
    await until('it is over', () => aside.isEmpty);
  });
});
