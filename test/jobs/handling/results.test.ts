import { describe, expect, it } from 'vitest';
import type { JobRecord } from '../../../src/core/records/job.js';
import { Results } from '../../../src/jobs/results.js';
import { memory } from '../../../src/memory/index.js';
import type { Ends, Store } from '../../../src/store/port.js';
import { virtualClock } from '../../../src/testing/index.js';
import { gate } from '../../support/mills.js';

const NOBODY: Ends = { ended: [], live: [] };
const alive = (...live: string[]): Ends => ({ ended: [], live });
const anEnd = (id: string, endedAt: number): JobRecord =>
  ({ id, status: 'failed', finishedAt: new Date(endedAt) }) as JobRecord;

/** Results from a store that answers as the test says. */
function someResults(answer: (ids: readonly string[]) => Promise<Ends>) {
  const clock = virtualClock();
  const asked: string[][] = [];
  const ends = (ids: readonly string[]): Promise<Ends> => {
    asked.push([...ids]);
    return answer(ids);
  };
  const store = Object.assign(Object.create(memory()) as Store, { clock, jobs: { ends } });
  return { clock, asked, results: new Results(() => Promise.resolve(store)) };
}

describe('waiting for the result of a job', () => {
  it('a wait ignores an answer that was requested before it began', async () => {
    const answers: ReturnType<typeof gate<Ends>>[] = [];
    const { clock, asked, results } = someResults(() => {
      const next = gate<Ends>();
      answers.push(next);
      return next.promise;
    });
    const first = results.wait('a');
    await clock.advance(0);
    expect(asked).toEqual([['a']]);
    // The job was retried after this answer was read.
    const second = results.wait('a');
    await clock.advance(0);
    answers[0]?.open({ ended: [anEnd('a', clock.now())], live: [] });
    expect((await first).id).toBe('a');
    await clock.advance(0);
    expect(asked).toHaveLength(2);
    answers[1]?.open(alive('a'));
    await clock.advance(1);
    const latest = anEnd('a', clock.now());
    results.ended('a', () => latest);
    expect(await second).toBe(latest);
  });

  it('a wait ignores a late notice about the end of an earlier run', async () => {
    const { clock, results } = someResults((ids) => Promise.resolve(alive(...ids)));
    const earlier = anEnd('a', clock.now());
    await clock.advance('1s');
    const waiting = results.wait('a');
    await clock.advance(0);
    results.ended('a', () => earlier);
    const latest = anEnd('a', clock.now());
    results.ended('a', () => latest);
    expect(await waiting).toBe(latest);
  });

  it('polls for each result with growing intervals, however many other waits begin', async () => {
    const { clock, asked, results } = someResults((ids) => Promise.resolve(alive(...ids)));
    void results.wait('old').catch(() => undefined);
    for (let n = 0; n < 500; n += 1) {
      await clock.advance(20);
      void results.wait(`new ${String(n)}`).catch(() => undefined);
    }
    const times = asked.filter((ids) => ids.includes('old')).length;
    // Ten seconds: about ten polls until they are a second apart, then one per second.
    expect(times).toBeLessThan(25);
    expect(times).toBeGreaterThan(10);
    results.stop();
  });

  it('a wait for a job that does not exist rejects', async () => {
    const { results } = someResults(() => Promise.resolve(NOBODY));
    await expect(results.wait('nowhere')).rejects.toThrow('There is no job nowhere');
  });
});
