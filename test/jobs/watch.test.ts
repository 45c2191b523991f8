import { expect, it } from 'vitest';
import type { ChangeKind, JobChange, JobWatch, Tidemill } from '../../src/index.js';
import { Changes } from '../../src/jobs/watch/change.js';
import { memory } from '../../src/memory/index.js';
import type { Store } from '../../src/store/port.js';
import { once } from '../../src/testing/conformance/fixtures.js';
import { aMill, gate, until } from '../support/mills.js';
import { eachStore } from '../support/stores.js';

const kinds = (changes: readonly JobChange[]): ChangeKind[] => changes.map(({ change }) => change);

/** Reads a watch to its end, or until `enough`. */
async function read(watch: JobWatch, enough: (told: readonly JobChange[]) => boolean = () => false) {
  const told: JobChange[] = [];
  for await (const change of watch) {
    told.push(change);
    if (enough(told)) break;
  }
  return told;
}

/** The store without its way of telling changes. */
function deaf(store: Store): Store {
  const { changes, ...jobs } = store.jobs;
  expect(changes).toBeDefined();
  return new Proxy(store, {
    get: (target, key) => {
      if (key === 'jobs') return jobs;
      const value: unknown = Reflect.get(target, key, target);
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
}

function worker(mill: Tidemill) {
  const [started, goOn, noted, finish] = [gate(), gate(), gate(), gate()];
  mill.job('work', { retryPolicy: once }, async (job) => {
    started.open();
    await goOn.promise;
    job.progress({ done: 1 });
    noted.open();
    await finish.promise;
    return 'done';
  });
  return { started, goOn, noted, finish };
}

it('a job that ends counts from when the server recorded it, whatever the time of the process that ran it', async () => {
  const store = memory();
  const mill = aMill(store);
  mill.job('work', () => undefined);
  await mill.start();
  const { id } = await mill.enqueue('work', {});
  await mill.jobs.result(id);
  const job = await store.jobs.get(id);
  if (job === undefined) throw new Error('the job is gone');
  const since = job.updatedAt.getTime();
  const earlier = { ...job, finishedAt: new Date(since - 1_000) };
  expect(new Changes(since).of(earlier)?.change).toBe('completed');
  expect(new Changes(since + 1).of(job)).toBeUndefined();
});

eachStore('watching jobs', ({ open }) => {
  it('tells what happens to a job of another mill, from how it is to how it ends', async () => {
    const store = open();
    const [mill, viewer] = [aMill(store), aMill(store)];
    const { goOn, finish } = worker(mill);
    const { id } = await mill.enqueue('work', {});
    const told: JobChange[] = [];
    const reading = (async () => {
      for await (const change of viewer.jobs.watch(id)) told.push(change);
    })();
    await until('it has begun', () => told.length === 1);
    await mill.start();
    await until('it has started', () => kinds(told).includes('started'));
    goOn.open();
    await until('it tells the progress', () => kinds(told).includes('progress'));
    finish.open();
    await reading;
    expect(kinds(told)).toEqual(['current', 'started', 'progress', 'completed']);
    expect(told.at(-1)?.job).toMatchObject({ id, status: 'completed', result: 'done' });
  });

  it('tells the last state of a job that is not kept, by its id and by a filter', async () => {
    const store = open();
    const mill = aMill(store, { retention: { completed: 0, failed: 0 } });
    const go = gate();
    mill.job('work', { retryPolicy: once }, async ({ data }) => {
      await go.promise;
      if (data === 'bad') throw new Error('no');
      return 'done';
    });
    const [good, bad] = [await mill.enqueue('work', 'good'), await mill.enqueue('work', 'bad')];
    const viewer = aMill(store);
    const all = viewer.jobs.watch({ name: 'work' });
    const isLast = ({ change }: JobChange): boolean => change === 'completed' || change === 'failed';
    const filtered = read(all, (told) => told.filter(isLast).length === 2);
    const ofOne: JobChange[] = [];
    const reading = (async () => {
      for await (const change of viewer.jobs.watch(good.id)) ofOne.push(change);
    })();
    await until('it watches', () => ofOne.length > 0);
    await mill.start();
    await until('it has started', () => kinds(ofOne).includes('started'));
    go.open();
    await reading;
    expect(kinds(ofOne)).toEqual(['current', 'started', 'completed']);
    expect(ofOne.at(-1)?.job.result).toBe('done');
    const ends = (await filtered).filter(isLast).map(({ job, change }) => [job.id, change] as const);
    expect(new Map(ends)).toEqual(
      new Map([
        [good.id, 'completed'],
        [bad.id, 'failed'],
      ]),
    );
  });

  it('ends at once for a job that has ended, and rejects for one that does not exist', async () => {
    const mill = aMill(open());
    const { id } = await mill.enqueue('work', {});
    await mill.jobs.cancel(id);
    expect(kinds(await read(mill.jobs.watch(id)))).toEqual(['current']);
    await expect(read(mill.jobs.watch('missing'))).rejects.toMatchObject({ code: 'JOB_MISSING' });
  });

  it('ends when the job that it watches is deleted', async () => {
    const mill = aMill(open());
    const { id } = await mill.enqueue('work', {}, { delay: '1h' });
    const watch = mill.jobs.watch(id);
    expect((await watch.next()).value).toMatchObject({ change: 'current' });
    const rest = read(watch);
    await mill.jobs.remove(id);
    expect(await rest).toEqual([]);
  });

  it('tells of a filter what happens from the call on, and of no other job', async () => {
    const store = open();
    const [mill, viewer] = [aMill(store), aMill(store)];
    mill.job('work', { retryPolicy: once }, ({ data }) => {
      if (data === 'bad') throw new Error('no');
    });
    mill.job('other', () => undefined);
    await mill.start();
    const before = await mill.enqueue('work', 'before');
    await mill.jobs.result(before.id);
    await new Promise((resolve) => setTimeout(resolve, 20));
    const watch = viewer.jobs.watch({ name: 'work' });
    const delayed = await mill.enqueue('work', 'good', { delay: '1h' });
    const reading = read(watch, (told) => told.filter(({ change }) => change === 'failed').length === 1);
    await mill.enqueue('other', {});
    const bad = await mill.enqueue('work', 'bad');
    const told = await reading;
    expect(new Set(told.map(({ job }) => job.name))).toEqual(new Set(['work']));
    expect(told.map(({ job }) => job.id)).not.toContain(before.id);
    expect(told.at(-1)).toMatchObject({ change: 'failed', job: { id: bad.id, failReason: 'no' } });
    expect(told.find(({ job }) => job.id === delayed.id)?.change).toBe('created');
  });

  it('tells a slow reader the last state of each job', async () => {
    const mill = aMill(open());
    mill.job('work', { concurrency: 50 }, () => undefined);
    const watch = mill.jobs.watch({ name: 'work' });
    await mill.start();
    const first = watch.next();
    const jobs = await mill.enqueueMany(Array.from({ length: 300 }, (_, data) => ({ name: 'work', data })));
    const told = await first;
    await until('all have run', async () => (await mill.jobs.count({ status: 'completed' })) === 300);
    const ended = new Set<string>();
    // The first change may be an end already.
    if (!told.done && told.value.change === 'completed') ended.add(told.value.job.id);
    for await (const { job, change } of watch) {
      if (change === 'completed') ended.add(job.id);
      if (ended.size === jobs.length) break;
    }
    expect(ended).toEqual(new Set(jobs.map(({ id }) => id)));
  });

  it('ends without an error when its signal aborts, when it is left, and when the mill stops', async () => {
    const store = open();
    const mill = aMill(store);
    const { id } = await mill.enqueue('work', {}, { delay: '1h' });
    const abort = new AbortController();
    const aborted = mill.jobs.watch(id, { signal: abort.signal });
    await aborted.next();
    const rest = aborted.next();
    abort.abort();
    expect(await rest).toEqual({ done: true, value: undefined });
    // Of a name without jobs: one that was stored in the millisecond of the call counts as new.
    const left = mill.jobs.watch({ name: 'unused' });
    const waiting = left.next();
    expect(await left.return?.()).toEqual({ done: true, value: undefined });
    expect((await waiting).done).toBe(true);
    const stopped = mill.jobs.watch({ name: 'unused' }).next();
    const idle = mill.jobs.watch(id);
    await idle.next();
    await mill.stop();
    expect((await stopped).done).toBe(true);
    expect((await idle.next()).done).toBe(true);
  });

  it('polls if the store cannot tell of changes', async () => {
    const store = open();
    const [mill, viewer] = [aMill(store), aMill(deaf(store))];
    const { goOn, noted, finish, started } = worker(mill);
    const { id } = await mill.enqueue('work', {});
    const one = read(viewer.jobs.watch(id));
    const many = read(viewer.jobs.watch({ name: 'work' }), (told) => kinds(told).includes('completed'));
    await mill.start();
    await started.promise;
    goOn.open();
    await noted.promise;
    finish.open();
    expect(kinds(await one)[0]).toBe('current');
    expect(kinds(await one).at(-1)).toBe('completed');
    expect(kinds(await many).at(-1)).toBe('completed');
  });
});
