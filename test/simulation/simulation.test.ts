import { beforeAll, describe, expect, it } from 'vitest';
import { closeEmbedded } from '../support/stores.js';
import { FAULTS, strikes } from './faults.js';
import { simulate } from './simulate.js';

const FOR_MS = 15_000;

beforeAll(closeEmbedded);

describe('the simulated cluster', () => {
  it('the simulation repeats exactly for one seed, and differs for another', async () => {
    const first = await simulate({ seed: 5, forMs: FOR_MS });
    const again = await simulate({ seed: 5, forMs: FOR_MS });
    const other = await simulate({ seed: 6, forMs: FOR_MS });
    const otherAgain = await simulate({ seed: 6, forMs: FOR_MS });
    expect(otherAgain.hash).toBe(other.hash);
    // Its number of partitions changes.
    expect([...other.counts.keys()].filter((what) => what.startsWith('divided'))).not.toEqual([]);
    expect(again.hash).toBe(first.hash);
    expect(again.last).toEqual(first.last);
    expect(other.hash).not.toBe(first.hash);
  });

  it('the simulation injects every kind of fault, runs every kind of work and finds no violation', async () => {
    const seen = new Set<string>();
    for (let seed = 1; seed <= 15; seed += 1) {
      const { counts, violations } = await simulate({ seed, forMs: FOR_MS });
      expect(violations).toEqual([]);
      for (const what of counts.keys()) seen.add(what);
    }
    for (const fault of FAULTS.filter(strikes)) expect(seen).toContain(`fault ${fault}`);
    for (const what of [
      'created',
      'claimed',
      'runs',
      'settled completed',
      'settled pending',
      'reclaimed pending',
      'charged error',
      'charged crashed',
      'left out',
      'checkpoints',
      'cleaned',
      'reprocessed',
      'concurrency reached',
      'rate reached',
      'breaker opened',
      'breaker trial',
      'divided into 2',
      'divided into 3',
      'leaders of partitions',
      'resume points of partitions',
    ])
      expect(seen).toContain(what);
  });

  it('the simulation restores Math.random, Date.now and setImmediate', async () => {
    const before = [Math.random, Date.now, setImmediate];
    await simulate({ seed: 1, forMs: 100 });
    expect([Math.random, Date.now, setImmediate]).toEqual(before);
  });
});
