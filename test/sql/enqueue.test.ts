import { describe, expect, it } from 'vitest';
import { embedded } from '../../src/embedded/index.js';
import { postgres } from '../../src/postgres/index.js';
import type { RetryPolicy } from '../../src/index.js';
import { present } from '../../src/testing/conformance/fixtures.js';
import type { Store } from '../../src/store/port.js';
import { aMill } from '../support/mills.js';
import { aClaim, aJob, anInstance, done, opened } from '../support/port.js';
import { freshSchema, rawPool, sharedEmbedded, useEmbedded } from '../support/stores.js';

interface Place {
  readonly schema: string;
  readonly store: () => Store;
  readonly query: (text: string, values?: unknown[]) => Promise<{ rows: Record<string, unknown>[] }>;
}

const places = [
  {
    name: 'postgres',
    prepare: () => undefined,
    open: (): Place => {
      const schema = freshSchema();
      const pool = rawPool();
      return {
        schema,
        store: () => postgres({ pool, schema }),
        query: (text, values) => pool.query(text, values),
      };
    },
  },
  {
    name: 'embedded',
    prepare: useEmbedded,
    open: (): Place => {
      const schema = `enqueue_${String((serial += 1))}`;
      return {
        schema,
        store: () => embedded({ database: sharedEmbedded(), schema }),
        query: async (text, values) => sharedEmbedded().query(text, values),
      };
    },
  },
];
let serial = 0;
/** An id begins with its time. */
const TIME_DIGITS = 9;

describe.each(places)('enqueue in plain SQL ($name)', ({ prepare, open }) => {
  prepare();

  /** Opens the store, so that the schema is there. */
  async function place(): Promise<
    Place & { opened: Store; enqueue: (...args: unknown[]) => Promise<string> }
  > {
    const here = open();
    const store = await opened(here.store());
    const enqueue = async (name: unknown, data: unknown = {}, options: unknown = {}): Promise<string> => {
      const values = [name, JSON.stringify(data), JSON.stringify(options)];
      const text = `select "${here.schema}".enqueue($1::text, $2::jsonb, $3::jsonb) as id`;
      return String((await here.query(text, values)).rows[0]?.['id']);
    };
    return { ...here, opened: store, enqueue };
  }

  it('stores what mill.enqueue would store, and answers the id', async () => {
    const { opened: store, enqueue, query, schema } = await place();
    const before = Date.now();
    const id = await enqueue(
      'x',
      { a: [1, null] },
      {
        delay: '10 minutes',
        priority: 3,
        uniqueKey: 'k',
        timeout: '1m30s',
        expireIn: 5_000,
        retryPolicy: { type: 'fixed', interval: '5s', maxAttempts: 2 },
      },
    );
    const job = present(await store.jobs.get(id));
    expect(job).toMatchObject({
      name: 'x',
      data: { a: [1, null] },
      status: 'pending',
      priority: 3,
      uniqueKey: 'k',
      timeoutMs: 90_000,
      retryPolicy: { type: 'fixed', interval: '5s', maxAttempts: 2 },
    });
    expect(job.nextRunAt.getTime() - before).toBeGreaterThan(599_000);
    expect(present(job.startBy).getTime() - job.nextRunAt.getTime()).toBe(5_000);
    expect(await enqueue('x', {}, { uniqueKey: 'k' })).toBe(id);
    const plain = (await query(`select "${schema}".enqueue('y') as id`)).rows[0]?.['id'];
    expect(await store.jobs.get(String(plain))).toMatchObject({ name: 'y', data: {} });
    const own = await enqueue('x', {}, { id: 'mine', runAt: '2030-01-31T12:00:00Z' });
    expect(own).toBe('mine');
    expect((await store.jobs.get('mine'))?.nextRunAt).toEqual(new Date('2030-01-31T12:00:00Z'));
  });

  it('stores the key of limits, and the place of the job in its order', async () => {
    const { opened: store, enqueue } = await place();
    const runAt = '2020-01-01T00:00:00.000Z';
    const job = present(await store.jobs.get(await enqueue('x', {}, { key: 'acme', runAt })));
    const order = [Date.parse(runAt), job.createdAt.getTime()].map((ms) => String(ms).padStart(15, '0'));
    expect(job.limitKey).toBe('acme');
    expect(job.limitOrder?.split('-').slice(0, 2)).toEqual(order);
    const number = present(await store.jobs.get(await enqueue('x', {}, { key: 7 })));
    expect(number.limitKey).toBe('7');
    await expect(enqueue('x', {}, { key: true })).rejects.toThrow('key must be a text');
  });

  it.each([
    1.0,
    0,
    -0,
    7.5,
    -3,
    1e3,
    1e15,
    123_456_789_012_345_680,
    1e20,
    1e21,
    1.5e21,
    1e-6,
    1e-7,
    2.5e-9,
    0.1,
    null,
    '',
    '1.0',
    'x'.repeat(1_024),
    '\u{1F600}'.repeat(512),
  ])('stores the key %j as mill.enqueue does', async (key) => {
    const { opened: store, enqueue } = await place();
    const id = await enqueue('x', {}, { key });
    const ours = await aMill(store).enqueue('x', {}, { key: key as string });
    const [theirs, own] = [await store.jobs.get(id), await store.jobs.get(ours.id)];
    expect(theirs?.limitKey).toBe(own?.limitKey);
    expect(theirs?.limitOrder).toEqual(expect.any(String));
  });

  it('stores a number as key as JavaScript reads it, however it is written', async () => {
    const { opened: store, query, schema } = await place();
    const keyOf = async (number: string): Promise<unknown> => {
      const text = `select "${schema}".enqueue('x', '{}', ('{"key": ' || $1 || '}')::jsonb) as id`;
      return (await store.jobs.get(String((await query(text, [number])).rows[0]?.['id'])))?.limitKey;
    };
    for (const number of ['1.0', '1.50', '1e2', '12345678901234567890', '-0.0', '0.10', '1E-10'])
      expect(await keyOf(number)).toBe(String(Number(number)));
    await expect(keyOf('1e400')).rejects.toThrow(/key must be/u);
  });

  it.each([
    { type: 'fixed', interval: '5s' },
    { type: 'fixed', interval: 0, maxAttempts: -1, jitter: true },
    { type: 'fixed' },
    { type: 'fixed', interval: '00:00:05' },
    { type: 'fixed', interval: -1 },
    { type: 'fixed', interval: '5s', factor: 2 },
    { type: 'linear', interval: '1.5h', maxDuration: '2 days' },
    { type: 'linear', interval: null },
    { type: 'exponential' },
    { type: 'exponential', min: '1s', max: '1m', factor: 1.5, jitter: 0.3 },
    { type: 'exponential', min: '2d' },
    { type: 'exponential', max: '1s' },
    { type: 'exponential', factor: 0.5 },
    { type: 'series', intervals: ['1m', 5_000] },
    { type: 'series', intervals: [] },
    { type: 'series', intervals: ['soon'] },
    { type: 'series' },
    { type: 'cron', expression: '0 3 * * *', timezone: 'Europe/Prague' },
    { type: 'cron' },
    { type: 'never' },
    {},
    { maxAttempts: 3 },
    { maxDuration: '1h' },
    { jitter: 2, maxAttempts: 3 },
    { maxAttempts: 0 },
    { maxAttempts: 1.5 },
    { maxAttempts: 3, attempts: 4 },
    { maxDuration: 0 },
    { interval: '5s' },
    [],
    'fixed',
    null,
  ])('accepts or refuses the retry policy %j as mill.enqueue does', async (given) => {
    const { opened: store, enqueue } = await place();
    const retryPolicy = given as RetryPolicy;
    const answerOf = (call: Promise<unknown>): Promise<string> =>
      call.then(
        () => 'accepted',
        (error: unknown) => (String(error).includes('retryPolicy') ? 'refused' : String(error)),
      );
    const ours = await answerOf(aMill(store).enqueue('x', {}, { retryPolicy }));
    expect(await answerOf(enqueue('x', {}, { retryPolicy }))).toBe(ours);
  });

  it('gives ids in the order of creation, as the store does', async () => {
    const { enqueue } = await place();
    const ids: string[] = [];
    for (let n = 0; n < 20; n += 1) ids.push(await enqueue('x', n));
    // Two of one millisecond may be in any order.
    const times = ids.map((id) => id.slice(0, TIME_DIGITS));
    expect(times).toEqual([...times].sort());
    expect(ids.every((id) => /^[0-9a-v]{22}$/u.test(id))).toBe(true);
  });

  it.each([
    [{ dealy: '1s' }, /unknown option "dealy"/u],
    [{ delay: 'soon' }, /delay/u],
    [{ delay: -1 }, /delay/u],
    [{ delay: true }, /delay/u],
    [{ runAt: 'soon' }, /runAt/u],
    [{ runAt: 'infinity' }, /runAt/u],
    [{ runAt: '2030-01-01', delay: 1 }, /runAt or delay/u],
    [{ priority: 11 }, /priority/u],
    [{ priority: 1.5 }, /priority/u],
    [{ priority: '1' }, /priority/u],
    [{ uniqueKey: ' ' }, /uniqueKey/u],
    [{ uniqueKey: 3 }, /uniqueKey/u],
    [{ id: 'schedule:x' }, /id must/u],
    [{ expireIn: 0 }, /expireIn/u],
    [{ timeout: 'x' }, /timeout/u],
    [{ retryPolicy: { type: 'never' } }, /retryPolicy/u],
    [{ onExisting: 'replace' }, /uniqueKey/u],
    [{ uniqueKey: 'k', onExisting: 'drop' }, /onExisting/u],
    [{ uniqueKey: 'k', debounce: { wait: '1s', max: 1 } }, /debounce/u],
    [{ uniqueKey: 'k', debounce: { maxWait: '1s' } }, /debounce/u],
    [{ uniqueKey: 'k', debounce: { wait: '2s', maxWait: '1s' } }, /maxWait/u],
    [{ uniqueKey: 'k', debounce: { wait: '1s' }, delay: 1 }, /debounce/u],
    [{ key: true }, /key must be a text/u],
    [{ key: '\u{1F600}'.repeat(513) }, /key must be a text/u],
    [[], /options must be an object/u],
  ])('refuses %o with an error that names it', async (options, message) => {
    const { opened: store, enqueue } = await place();
    await expect(enqueue('x', {}, options)).rejects.toThrow(message);
    await expect(enqueue(' ', {}, {})).rejects.toThrow(/name/u);
    expect(await store.jobs.count({})).toBe(0);
  });

  it('replaces, reschedules and debounces, and makes a successor of a running job', async () => {
    const { opened: store, enqueue } = await place();
    const id = await enqueue('work', 1, { uniqueKey: 'k', delay: '1h' });
    expect(await enqueue('work', 2, { uniqueKey: 'k', onExisting: 'replace', delay: 0 })).toBe(id);
    expect(await enqueue('work', 3, { uniqueKey: 'k', onExisting: 'reschedule' })).toBe(id);
    const { jobs } = await store.jobs.claim(aClaim(anInstance()));
    expect(jobs.map(({ data }) => data)).toEqual([2]);
    const next = await enqueue('work', 4, { uniqueKey: 'k', debounce: { wait: '1ms' } });
    expect(next).not.toBe(id);
    expect(await enqueue('work', 5, { uniqueKey: 'k', debounce: { wait: '1ms' } })).toBe(next);
    const [running] = jobs;
    const releases = { name: 'work', uniqueKey: 'k' };
    expect(await store.jobs.settle([done(present(running), { releases })])).toEqual(['settled']);
    expect(await store.jobs.get(next)).toMatchObject({ uniqueKey: 'k', data: 5 });
  });

  it('takes the key of a job that did not start in time', async () => {
    const { opened: store, enqueue } = await place();
    const old = new Date(Date.now() - 5_000);
    const [late] = await store.jobs.insert([
      { ...aJob({ uniqueKey: 'k', nextRunAt: old, startBy: old }), id: store.jobs.newId() },
    ]);
    const id = await enqueue('work', 2, { uniqueKey: 'k' });
    expect(id).not.toBe(late?.job.id);
    expect(await store.jobs.get(present(late).job.id)).toMatchObject({ failReason: 'expired' });
  });

  it('runs in a trigger, and wakes the workers at the commit', async () => {
    const here = await place();
    const { schema, query } = here;
    const mill = aMill(here.store(), { pollInterval: { min: '1h', max: '1h' } });
    mill.job('welcome', ({ data }) => data);
    await mill.start();
    await query(`create table "${schema}".customers (id integer primary key, mail text)`);
    await query(`create function "${schema}".welcome() returns trigger language plpgsql as $$
      begin
        perform "${schema}".enqueue('welcome', jsonb_build_object('to', new.mail),
          jsonb_build_object('id', 'welcome-' || new.id));
        return new;
      end $$`);
    await query(`create trigger welcome after insert on "${schema}".customers for each row
      execute function "${schema}".welcome()`);
    await query(`insert into "${schema}".customers values (1, 'ada@example.com')`);
    expect(await mill.jobs.result('welcome-1')).toEqual({ to: 'ada@example.com' });
  });

  it('releases what a crash, or an older version, has left waiting', async () => {
    const { opened: store, enqueue, query, schema } = await place();
    await enqueue('work', 1, { uniqueKey: 'k' });
    const { jobs } = await store.jobs.claim(aClaim(anInstance()));
    const next = await enqueue('work', 2, { uniqueKey: 'k', onExisting: 'replace' });
    expect(await store.jobs.releaseSuccessors?.()).toBe(0);
    await query(`update "${schema}".jobs set status = 'completed' where id = $1`, [jobs[0]?.id]);
    expect(await store.jobs.releaseSuccessors?.()).toBe(1);
    const claimed = await store.jobs.claim(aClaim(anInstance()));
    expect(claimed.jobs.map(({ id }) => id)).toEqual([next]);
  });
});
