import { expect, it } from 'vitest';
import { StoreError } from '../../src/core/errors.js';
import type { JobRecord } from '../../src/core/records/job.js';
import { Handover } from '../../src/maintenance/handover.js';
import { leaseOf, type Settlement } from '../../src/store/port.js';
import { virtualClock } from '../../src/testing/index.js';
import { aClaimed } from '../engine/support.js';
import { anInstance } from '../support/port.js';

const NEVER = new AbortController().signal;

/** Work of a dead process in a store that fails as told. */
function aHandover(works: readonly JobRecord[], hasTrouble: (ids: readonly string[]) => boolean) {
  const held = new Map(works.map((work) => [work.id, work]));
  let asked = 0;
  const handover = new Handover<JobRecord, Settlement>({
    store: {
      held: (leases) => Promise.resolve(leases.map(({ id }) => held.get(id))),
      heldBy: () => Promise.resolve([...held.values()]),
      strays: () => Promise.resolve([]),
      insertFailedRun: () => Promise.resolve(),
      settle: (batch) => {
        asked += 1;
        const ids = batch.map(({ lease }) => lease.id);
        if (hasTrouble(ids)) return Promise.reject(new StoreError('no answer', { transient: true }));
        return Promise.resolve(ids.map((id) => (held.delete(id) ? 'settled' : 'lost')));
      },
    },
    clock: virtualClock(),
    runner: {
      conclude: (work) => ({
        settlement: { lease: leaseOf(work), status: 'pending', set: {}, historyLimit: 5, by: 'holder' },
      }),
      isLastAttempt: () => false,
    },
    engine: { unknown: () => undefined },
    host: { recovered: () => undefined, error: () => undefined },
  });
  return {
    held,
    asked: () => asked,
    look: (): Promise<boolean> => handover.emptied(anInstance(), {}, NEVER).catch(() => false),
  };
}

it("hands on a dead process's other jobs although the store fails on one of them every time", async () => {
  const works = Array.from({ length: 100 }, () => aClaimed());
  const bad = works[37]?.id ?? '';
  const { held, look } = aHandover(works, (ids) => ids.includes(bad));
  for (let looks = 0; looks < 12; looks += 1) expect(await look()).toBe(false);
  expect([...held.keys()]).toEqual([bad]);
});

it('sends at most two settlements per look during an outage, and hands on everything afterwards', async () => {
  let away = true;
  const { held, asked, look } = aHandover(
    Array.from({ length: 100 }, () => aClaimed()),
    () => away,
  );
  for (let looks = 0; looks < 1_100; looks += 1) expect(await look()).toBe(false);
  expect(asked()).toBeLessThan(2_200);
  away = false;
  expect(await look()).toBe(true);
  expect(held.size).toBe(0);
});
