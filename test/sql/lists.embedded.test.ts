import { expect, it } from 'vitest';
import { isTimed, newId } from '../../src/sql/jobs/enqueue/ids.js';
import type { JobFilter, JobStore, Page } from '../../src/store/port.js';
import { aJob, opened } from '../support/port.js';
import { freshEmbedded, useEmbedded } from '../support/stores.js';

useEmbedded();

const at = Date.now() - 60_000;

/** All pages of a list, as ids. */
async function listed(
  jobs: JobStore,
  filter: JobFilter,
  page: Omit<Page, 'limit'>,
): Promise<readonly string[]> {
  const found: string[] = [];
  for (let after: Page['after']; ;) {
    const one = await jobs.find(filter, { ...page, limit: 3, ...(after === undefined ? {} : { after }) });
    found.push(...one.jobs.map(({ id }) => id));
    const last = one.jobs.at(-1);
    if (!one.more || last === undefined) return found;
    after = { at: last[page.field], key: jobs.cursorKey(last) };
  }
}

it.each([1, -1] as const)(
  'lists by age have ids of the store and of the caller in one order, page by page (%i)',
  async (direction) => {
    const { jobs } = await opened(freshEmbedded());
    const own = ['zebra', '1', 'order-7', '1n', newId(at + 9_000)];
    const given = Array.from({ length: 25 }, (_, n) => {
      const createdAt = new Date(at + Math.floor(n / 4));
      return aJob({ createdAt, ...(n % 5 === 0 ? { id: own[n / 5]!, ownId: true } : {}) });
    });
    const inserted = (await jobs.insert(given)).map(({ job }) => job);
    expect(inserted.filter(({ id, createdAt }) => isTimed(id, createdAt))).toHaveLength(20);
    const ordered = (some: typeof inserted): readonly string[] =>
      [...some]
        .sort((a, b) => direction * (a.createdAt.getTime() - b.createdAt.getTime() || (a.id < b.id ? -1 : 1)))
        .map(({ id }) => id);
    expect(await listed(jobs, {}, { field: 'createdAt', direction })).toEqual(ordered(inserted));
    const status = ['pending', 'failed'] as const;
    expect(await listed(jobs, { status }, { field: 'createdAt', direction })).toEqual(ordered(inserted));
    expect(await listed(jobs, { status: ['pending'] }, { field: 'updatedAt', direction })).toEqual(
      ordered(inserted),
    );
    const createdAt = { from: new Date(at + 1), to: new Date(at + 3) };
    const within = inserted.filter((job) => job.createdAt >= createdAt.from && job.createdAt <= createdAt.to);
    expect(within).toHaveLength(12);
    expect(await listed(jobs, { createdAt }, { field: 'createdAt', direction })).toEqual(ordered(within));
  },
);

it('lists pending jobs by their last change, whether something changed them or not', async () => {
  const { jobs } = await opened(freshEmbedded());
  const names = ['a', 'b', 'a', 'b'];
  const [first, second] = await jobs.insert(
    names.map((name, n) => aJob({ name, createdAt: new Date(at + n), nextRunAt: new Date(at) })),
  );
  for (const one of [second, first]) await jobs.reschedule(one?.job.id ?? '', new Date(at + 1));
  const found = await jobs.find({ status: ['pending'] }, { field: 'updatedAt', direction: 1, limit: 10 });
  const changed = await jobs.find(
    { status: ['pending'], name: ['a'] },
    { field: 'updatedAt', direction: -1, limit: 10 },
  );
  const offsets = found.jobs.map(({ createdAt }) => createdAt.getTime() - at);
  expect(offsets.slice(0, 2)).toEqual([2, 3]);
  expect(offsets.slice(2).sort()).toEqual([0, 1]);
  expect(changed.jobs.map(({ createdAt }) => createdAt.getTime() - at)).toEqual([0, 2]);
});

it('counts jobs of several statuses once each, up to a limit', async () => {
  const { jobs } = await opened(freshEmbedded());
  await jobs.insert([aJob(), aJob(), aJob()]);
  expect(await jobs.count({ status: ['pending', 'failed', 'pending'] })).toBe(3);
  expect(await jobs.count({ status: ['pending', 'failed'] }, 2)).toBe(2);
  expect(await jobs.count({ status: [] })).toBe(0);
});
