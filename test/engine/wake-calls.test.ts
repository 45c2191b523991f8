import { expect, it } from 'vitest';
import { Lanes } from '../../src/engine/claim/lanes.js';
import { WakeCalls } from '../../src/engine/claim/wake-calls.js';
import { virtualClock } from '../../src/testing/index.js';
import { aClaimed } from './support.js';

const CLUSTER = 100;

function anInstance(rank = 0, { of = CLUSTER, slots = 1, isDirect = false } = {}) {
  const clock = virtualClock(0);
  const lanes = new Lanes(slots);
  lanes.define(new Map(['own', 'other'].map((name) => [name, { concurrency: 5 }])));
  const did: string[] = [];
  const loop = {
    peekedAt: -1,
    hint: ({ key }: { readonly key: unknown }) => did.push(`hint ${String(key)}`),
    remember: () => did.push('remember'),
    peekNext: () => did.push('peek'),
  };
  const notify = (): number => did.push('claim');
  const calls = new WakeCalls({
    lanes,
    loop,
    notify,
    clock,
    place: () => ({ rank, of }),
    isDirect: () => isDirect,
  });
  return { calls, lanes, clock, loop, did };
}

const due = (...names: readonly string[]): ReadonlyMap<string, number> =>
  new Map(names.map((name) => [name, 1]));
const aHint = (key = 'id'): { key: string; name: string } => ({ key, name: 'own' });

it('a wake-up for names that an instance does not run leaves it alone', async () => {
  const { calls, clock, did } = anInstance(0, { of: 1 });
  calls.heard({ key: 'id', name: 'foreign' }, due('foreign'));
  calls.stored(['foreign']);
  await clock.advance('1m');
  expect(did).toEqual([]);
});

it('a wake-up without names makes every instance claim', () => {
  const { calls, did } = anInstance(77);
  calls.heard(aHint());
  expect(did).toEqual(['hint id', 'claim']);
});

it('a wake-up reaches an instance without a free slot once one is free', async () => {
  const { calls, lanes, clock, did } = anInstance(0, { of: 1 });
  lanes.accept([aClaimed({ name: 'other' })], 0);
  lanes.next(0);
  calls.heard(aHint(), due('own'));
  calls.stored(['own']);
  await clock.advance('1m');
  expect(did).toEqual(['remember', 'remember']);
});

it.each([1, 5, 40])('of a hundred idle instances about as many claim as %i new jobs need', async (jobs) => {
  const instances = Array.from({ length: CLUSTER }, (_, rank) => anInstance(rank));
  for (const { calls } of instances) calls.heard(aHint(), new Map([['own', jobs]]));
  const count = (what: string): number => instances.filter(({ did }) => did.includes(what)).length;
  expect(count('claim')).toBe(jobs + 1);
  expect(count('peek')).toBe(0);
  for (const { clock } of instances) await clock.advance(150);
  expect(count('peek')).toBe(3);
  expect(instances.filter(({ did }) => did.length === 0)).toHaveLength(CLUSTER - jobs - 4);
});

it('another instance comes first for another job', () => {
  const first = (key: string): number =>
    Array.from({ length: CLUSTER }, (_, rank) => rank).findIndex((rank) => {
      const { calls, did } = anInstance(rank);
      calls.heard(aHint(key), due('own'));
      return did.includes('claim');
    });
  expect(new Set(['a', 'b', 'c', 'd', 'e'].map(first)).size).toBeGreaterThan(1);
});

it('all instances of a small cluster, and of a store that loses no wake-up, claim at once', () => {
  for (const options of [{ of: 4 }, { isDirect: true }]) {
    for (const rank of [0, 1, 2, 3]) {
      const { calls, did } = anInstance(rank, options);
      calls.heard(aHint(), due('own'));
      expect(did).toEqual(['hint id', 'claim']);
    }
  }
});

it('an instance whose peek came after the wake-up does not peek again, and peeks later at most once a second', async () => {
  const instances = Array.from({ length: CLUSTER }, (_, rank) => anInstance(rank));
  for (const { calls, clock } of instances) {
    calls.heard(aHint(), due('own'));
    await clock.advance(150);
  }
  const backup = instances.findIndex(({ did }) => did.includes('peek'));
  const { calls, clock, loop, did } = anInstance(backup);
  loop.peekedAt = Infinity;
  calls.heard(aHint(), due('own'));
  await clock.advance(200);
  expect(did).toEqual([]);
  loop.peekedAt = -1;
  for (let n = 0; n < 20; n += 1) {
    calls.heard(aHint(), due('own'));
    await clock.advance(100);
  }
  expect(did.filter((what) => what === 'peek').length).toBeLessThanOrEqual(2);
  expect(did).toContain('peek');
});
