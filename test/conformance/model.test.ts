import fc from 'fast-check';
import { it } from 'vitest';
import { memory } from '../../src/memory/index.js';
import type { Store } from '../../src/store/port.js';
import { interleavings } from '../../src/testing/conformance/facts/interleaving.js';
import { Model, type Step } from '../../src/testing/conformance/model.js';
import { virtualClock } from '../../src/testing/index.js';
import { opened } from '../support/port.js';
import { eachStore, eachStoreProves } from '../support/stores.js';

const worker = fc.nat(2);
const steps: fc.Arbitrary<Step[]> = fc.array<Step>(
  fc.oneof(
    fc.record({
      do: fc.constant('enqueue' as const),
      key: fc.option(fc.constantFrom('a', 'b')),
      priority: fc.integer({ min: -2, max: 2 }),
    }),
    fc.record({ do: fc.constant('claim' as const), worker, max: fc.integer({ min: 1, max: 4 }) }),
    fc.record({
      do: fc.constantFrom('complete' as const, 'retry later' as const, 'hand back' as const),
      worker,
    }),
    fc.record({ do: fc.constantFrom('crash' as const, 'wake the dead' as const), worker }),
    fc.record({ do: fc.constantFrom('cancel' as const, 'retry' as const), job: fc.nat(20) }),
    fc.record({ do: fc.constant('time passes' as const), ms: fc.integer({ min: 1, max: 120_000 }) }),
  ),
  { minLength: 5, maxLength: 45 },
);

let serial = 0;

async function behavesLikeItsModel(
  store: Store,
  pass: (ms: number) => Promise<void>,
  numRuns: number,
): Promise<void> {
  await fc.assert(
    fc.asyncProperty(steps, (plan) => new Model(store, `model-${String((serial += 1))}`, pass).play(plan)),
    { numRuns },
  );
}

eachStoreProves(interleavings);

eachStore('random interleavings with shrinking', ({ open, name }) => {
  it('matches a simple model under random interleavings of workers, crashes and operators', async () => {
    const store = await opened(open());
    await behavesLikeItsModel(store, () => Promise.resolve(), name === 'memory' ? 100 : 20);
  });
});

it('matches a simple model under random interleavings with a moving clock (memory)', async () => {
  const clock = virtualClock('2026-01-01');
  await behavesLikeItsModel(memory({ clock }), (ms) => clock.advance(ms), 100);
});
