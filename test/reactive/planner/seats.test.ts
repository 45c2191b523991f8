import { describe, expect, it, onTestFinished } from 'vitest';
import { StoreError } from '../../../src/core/errors.js';
import { Tidemill } from '../../../src/index.js';
import { memory, type MemoryStore } from '../../../src/memory/index.js';
import type { Partitioning } from '../../../src/store/reactive/partitions.js';
import type { PlannerStore } from '../../../src/store/reactive/reactive.js';
import { until } from '../../support/mills.js';

/** A store that can lose one resignation from a partition other than 0. The instance `barred` never leads 0. */
function losing(barred?: string): {
  readonly store: MemoryStore;
  readonly lose: () => void;
  readonly isLost: () => boolean;
} {
  const store = memory();
  let state: 'quiet' | 'losing' | 'lost' = 'quiet';
  const partitioning: Partitioning = store.reactive.partitioning;
  const within = partitioning.within.bind(partitioning);
  const watched = (planner: PlannerStore): PlannerStore => ({
    ...planner,
    resign: async (term) => {
      if (state !== 'losing') return planner.resign(term);
      state = 'lost';
      throw new StoreError('resign: no answer.', { transient: true, outcomeUnknown: true });
    },
  });
  const selective = (planner: PlannerStore): PlannerStore => ({
    ...planner,
    lead: async (self, from) => (self.instanceId === barred ? undefined : planner.lead(self, from)),
  });
  Object.assign(partitioning, {
    within: (partition: Parameters<typeof within>[0]) => {
      const part = within(partition);
      return { ...part, planner: partition.index === 0 ? selective(part.planner) : watched(part.planner) };
    },
  });
  return { store, lose: () => (state = 'losing'), isLost: () => state === 'lost' };
}

async function start(store: MemoryStore, instanceId: string, partitions: number): Promise<Tidemill> {
  const mill = new Tidemill({ store, instanceId, reactive: { partitions }, logger: false });
  onTestFinished(() => mill.stop());
  await mill.reactiveTask({ task: 't', collection: 'things', debounce: 0, handler: () => undefined });
  await mill.start();
  return mill;
}

/** Who leads each partition, on record; a partition that is not led is null. */
const leaders = ({ reactive }: MemoryStore): readonly (string | null)[] =>
  reactive.opened.planner.partitions.map(({ leader }) =>
    (leader?.life ?? null) === null ? null : (leader?.instanceId ?? null),
  );

/** Every document that is written now is planned. */
async function plansAll(store: MemoryStore, from: number): Promise<void> {
  const things = store.collection('things');
  for (let id = from; id < from + 20; id += 1) things.insert({ _id: id });
  await until('all partitions are planned', () => {
    const tasks = store.reactive.opened.table.all(() => true);
    return tasks.filter(({ status }) => status === 'completed').length === from + 20;
  });
}

describe('partitions that an instance leads on record only', () => {
  it('are given back if the resignation to make room for another instance was lost', async () => {
    const { store, lose, isLost } = losing();
    await start(store, 'a', 2);
    await until('a leads both', () => leaders(store).join() === 'a,a');
    await plansAll(store, 0);
    lose();
    await start(store, 'b', 2);
    await until('the resignation was lost', isLost);
    // Has everybody look at once.
    await store.reactive.planner.notifyPeers(true);
    await until('b leads one', () => leaders(store).join() === 'a,b');
    await plansAll(store, 20);
  });

  it('are given back if the resignation before a change of the number was lost', async () => {
    const { store, lose, isLost } = losing('b');
    const first = await start(store, 'a', 2);
    await until('a leads both', () => leaders(store).join() === 'a,a');
    await start(store, 'b', 3);
    await until('b leads one', () => leaders(store).join() === 'a,b');
    await start(store, 'c', 3);
    lose();
    await first.stop();
    await until('the resignation was lost', isLost);
    // Has everybody look at once.
    await store.reactive.planner.notifyPeers(true);
    await until('three are led', () => leaders(store).length === 3 && !leaders(store).includes(null));
    await plansAll(store, 0);
    expect(new Set(leaders(store))).toEqual(new Set(['b', 'c']));
  });
});
