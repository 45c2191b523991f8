import { chapter, fact, type Chapter } from '../chapters.js';
import { Model, type Step } from '../model.js';

const PLANS = 10;

/** Numbers below `limit` that follow from the seed, so that a failure can be repeated. The method is mulberry32. */
function numbers(seed: number): (limit: number) => number {
  let state = seed;
  return (limit) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % limit;
  };
}

function stepOf(next: (limit: number) => number): Step {
  switch (next(5)) {
    case 0:
      return { do: 'enqueue', key: ['a', 'b', null][next(3)] ?? null, priority: next(5) - 2 };
    case 1:
      return { do: 'claim', worker: next(3), max: next(4) + 1 };
    case 2:
      return {
        do: (['complete', 'retry later', 'hand back'] as const)[next(3)] ?? 'complete',
        worker: next(3),
      };
    case 3:
      return { do: next(2) === 0 ? 'crash' : 'wake the dead', worker: next(3) };
    default:
      return { do: next(2) === 0 ? 'cancel' : 'retry', job: next(20) };
  }
}

export const interleavings: Chapter = chapter('random interleavings', [
  fact(
    'matches a simple model under random interleavings of workers, crashes and operators',
    async ({ opened }) => {
      const store = await opened();
      for (let seed = 1; seed <= PLANS; seed += 1) {
        const next = numbers(seed);
        const plan = Array.from({ length: 45 }, () => stepOf(next));
        try {
          await new Model(store, `model-${String(seed)}`).play(plan);
        } catch (error) {
          throw new Error(`plan ${String(seed)}: ${JSON.stringify(plan)}`, { cause: error });
        }
      }
    },
  ),
]);
