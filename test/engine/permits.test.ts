import { describe, expect, it } from 'vitest';
import { noMeter } from '../../src/core/meter.js';
import type { Work } from '../../src/core/records/work.js';
import { LimitedWork } from '../../src/engine/limits/limited-work.js';
import { Permits } from '../../src/engine/limits/permits.js';
import { memory } from '../../src/memory/index.js';
import { scopeText, type ScopeLimits, type ScopeRef } from '../../src/store/port.js';
import { virtualClock, type VirtualClock } from '../../src/testing/index.js';

const SCOPE: ScopeRef = { kind: 'job', name: 'work' };

/** The permits of one instance, and the gate of its jobs, on a memory store with one limited name. */
async function permitted(limits: ScopeLimits) {
  const clock: VirtualClock = virtualClock();
  const store = memory({ clock });
  await store.limits.define(SCOPE, { limits, code: null, set: null }, null);
  const turns: string[] = [];
  const permits = new Permits({
    store: store.limits,
    clock,
    meter: noMeter,
    host: {
      self: () => ({ instanceId: 'me', life: '0123456789abcdef' }),
      failed: (error) => {
        throw error;
      },
      changed: () => undefined,
      missing: () => undefined,
      turned: (_scope, to) => void turns.push(to),
    },
  });
  await permits.refresh();
  const held: Work[] = [];
  const limited = new LimitedWork<Work>({
    permits,
    clock,
    kind: 'job',
    held: () => held,
    bar: () => undefined,
  });
  /** Claims for as many as it is let, and takes so many of them. */
  const claim = async (taken: number): Promise<readonly Work[] | undefined> => {
    const asked = { limits: new Map([['work', { max: 1, rank: 0, of: 1 }]]), total: 1 };
    const { request, ticket } = (await limited.gate?.admit(asked, new Set(['work']))) ?? { request: null };
    if (request === null) return undefined;
    const jobs = Array.from({ length: taken }, (_none, n): Work => aWork(`job-${String(n)}`));
    held.push(...jobs);
    const cluster = { now: new Date(clock.now()), paused: new Set<string>() };
    limited.gate?.claimed(request, { jobs, more: false, cluster }, ticket);
    return jobs;
  };
  return { clock, store, permits, limited, held, turns, claim };
}

const aWork = (id: string): Work => ({
  key: id,
  id,
  name: 'work',
  lockedAt: new Date(0),
});

describe('Permits', () => {
  it('says that a breaker is tried when work was claimed for it, and not before', async () => {
    const rule = { failures: 1, withinMs: 60_000, pauseMs: 1_000 };
    const { clock, store, turns, claim } = await permitted({ breaker: rule });
    await store.limits.turnBreaker(SCOPE, 'open');
    await clock.advance('2s');
    for (let empty = 0; empty < 3; empty += 1) {
      expect(await claim(0)).toEqual([]);
      await clock.advance('100ms');
    }
    expect(turns).toEqual([]);
    expect(await claim(1)).toHaveLength(1);
    expect(turns).toEqual(['trial']);
  });

  it('gives the start of buffered work back that another instance has by now', async () => {
    const { clock, store, limited, held, claim } = await permitted({
      rate: { limit: 1, perMs: 3_600_000, burst: 1 },
    });
    const starts = async (): Promise<number | undefined> =>
      (await store.limits.read([SCOPE])).scopes[0]?.startsInWindow;
    const [job] = (await claim(1)) ?? [];
    expect(await starts()).toBe(1);
    limited.lost(job as Work, false);
    held.length = 0;
    limited.tell();
    await clock.advance('1s');
    expect(await starts()).toBe(0);
    const [next] = (await claim(1)) ?? [];
    limited.lost(next as Work, true);
    held.length = 0;
    limited.tell();
    await clock.advance('1s');
    expect(await starts()).toBe(1);
  });

  it('keeps the permits of work without a recorded outcome when it stops', async () => {
    const { store, permits, held, claim } = await permitted({ concurrency: 3 });
    await claim(1);
    await permits.stop();
    const holders = async () => (await store.limits.read([SCOPE])).scopes[0]?.holders;
    expect(await holders()).toMatchObject([{ held: 1, gone: false }]);
    expect(permits.isInUse).toBe(true);
    held.length = 0;
    expect(permits.isInUse).toBe(false);
    expect(permits.limits(scopeText(SCOPE))).toEqual({ concurrency: 3 });
  });
});
