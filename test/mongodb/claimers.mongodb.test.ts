import { describe, expect, it } from 'vitest';
import { mongodb } from '../../src/mongodb/index.js';
import { aClaim, aJob, anInstance, opened } from '../support/port.js';
import { freshUri } from '../support/stores.js';

const CLAIMERS = 24;
const JOBS = 600;
const MAX = 5;

describe('many claimers on MongoDB', () => {
  it('instances that share slices take each job once, and leave none', async () => {
    const uri = freshUri();
    const store = await opened(mongodb({ uri }));
    await store.jobs.insert(Array.from({ length: JOBS }, (_one, n) => aJob({ data: n })));
    const taken: unknown[] = [];
    const claimAll = async (rank: number): Promise<void> => {
      // Each has a store, as a process of its own would have.
      const own = await opened(mongodb({ uri }));
      const limits = new Map([['work', { max: MAX, rank, of: CLAIMERS }]]);
      for (;;) {
        const { jobs, more } = await own.jobs.claim(aClaim(anInstance(), { limits, total: MAX }));
        taken.push(...jobs.map(({ data }) => data));
        if (jobs.length === 0 && !more) return;
      }
    };
    await Promise.all(Array.from({ length: CLAIMERS }, (_one, rank) => claimAll(rank)));
    expect(taken).toHaveLength(JOBS);
    expect(new Set(taken).size).toBe(JOBS);
  });

  it('a claimer whose window is behind the end of the queue takes from its head', async () => {
    const uri = freshUri();
    const [store, other] = [await opened(mongodb({ uri })), await opened(mongodb({ uri }))];
    const limits = new Map([['work', { max: MAX, rank: 0, of: CLAIMERS }]]);
    const claim = () => store.jobs.claim(aClaim(anInstance(), { limits, total: MAX }));
    // It loses whole claims: the other takes each job that it has just seen as a candidate.
    for (let n = 0; n < 40; n += 1) {
      await store.jobs.insert([aJob({ data: n })]);
      await Promise.all([claim(), other.jobs.claim(aClaim(anInstance(), { limits, total: MAX }))]);
    }
    await store.jobs.insert([aJob({ data: 'last' })]);
    expect((await claim()).jobs.map(({ data }) => data)).toEqual(['last']);
  });
});
