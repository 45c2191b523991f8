import { describe, expect, it, onTestFinished } from 'vitest';
import { systemClock } from '../../../src/core/clock.js';
import { BlockedDocuments } from '../../../src/reactive/planner/blocked-documents.js';
import { Troubles } from '../../../src/reactive/planner/troubles.js';
import type { BlockedOfTask, TaskPlan } from '../../../src/store/reactive/reactive.js';
import { until } from '../../support/mills.js';

const plan = { task: 't' } as TaskPlan;
const chokedOn = (...ids: number[]) =>
  ids.map((id) => ({ id, key: String(id), reason: 'held', blocked: true }));

/** Documents that were set aside; those in `held` are still held when they are retried. */
function anAside(...held: number[]) {
  const retried: unknown[] = [];
  const saved: BlockedOfTask[] = [];
  const stop = new AbortController();
  onTestFinished(() => stop.abort());
  const troubles = new Troubles(systemClock);
  const blocked: BlockedDocuments = new BlockedDocuments({
    clock: systemClock,
    stop: stop.signal,
    retry: (_task, ids) => {
      retried.push(...ids);
      blocked.add(plan, chokedOn(...held.filter((id) => ids.includes(id))));
      return Promise.resolve();
    },
    save: (one) => Promise.resolve(void saved.push(one)),
    troubles,
    error: () => undefined,
  });
  const keys = (): readonly string[] => saved.at(-1)?.documents.map(({ key }) => key) ?? [];
  return { blocked, retried, saved, keys, held, troubles };
}

describe('documents that are set aside', () => {
  it('records blocked documents before the resume point moves, and removes them once planned', async () => {
    const { blocked, retried, saved, keys, held } = anAside(1, 2);
    blocked.add(plan, chokedOn(1, 2, 1));
    await blocked.keep();
    expect(keys()).toEqual(['1', '2']);
    blocked.add(plan, chokedOn(2));
    await blocked.keep();
    expect(saved).toHaveLength(1);
    held.splice(0, 1);
    await until('one of them is planned', () => keys().join() === '2');
    expect(blocked.size).toBe(1);
    held.splice(0);
    await until('both are planned', () => keys().length === 0);
    expect(retried).toContain(1);
    expect(blocked.size).toBe(0);
  });

  it('keeps blocked documents on record while they are retried', async () => {
    const { blocked, keys, held } = anAside(1);
    blocked.add(plan, chokedOn(1));
    await blocked.keep();
    held.push(2);
    blocked.add(plan, chokedOn(2));
    await blocked.keep();
    expect(keys()).toEqual(['1', '2']);
  });

  it('the next leader takes over blocked documents', async () => {
    const { blocked, retried, keys, saved } = anAside();
    blocked.restore([{ task: 't', documents: [{ id: 7, key: '7' }] }]);
    await until('it was tried again', () => retried.length === 1);
    await until('its record is gone', () => saved.length === 1);
    expect(retried).toEqual([7]);
    expect(keys()).toEqual([]);
  });

  it('blocked documents are reported as a trouble until they are planned', async () => {
    const { blocked, troubles, held } = anAside(1);
    blocked.add(plan, chokedOn(1));
    expect(troubles.olderThan(0)).toEqual([
      'documents of t: 1 cannot be planned: an open transaction holds their tasks',
    ]);
    held.splice(0);
    await until('it is over', () => troubles.olderThan(0).length === 0);
  });

  it('rejects blocked documents beyond a limit, so that the task is reconciled instead', () => {
    const { blocked } = anAside();
    const many = Array.from({ length: 10_001 }, (_, id) => id);
    expect(() => blocked.add(plan, chokedOn(...many))).toThrow('More than 10000 documents of "t" wait');
  });
});
