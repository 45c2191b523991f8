import { randomBytes } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { StoreError, type TidemillError } from '../../../src/core/errors.js';
import { memory } from '../../../src/memory/index.js';
import { mongodb } from '../../../src/mongodb/index.js';
import type { Settlement, Store } from '../../../src/store/port.js';
import { aMill, until } from '../../support/mills.js';
import { aClaim, aJob, anInstance, opened } from '../../support/port.js';
import { freshPostgres, freshUri, rawClient, rawPool } from '../../support/stores.js';

/** A database with a user's own rule that refuses one job, called "poison". */
interface Fixture {
  readonly store: Store;
  /** From now on the end of its run cannot be written. */
  readonly refuse: () => Promise<void>;
  readonly allow: () => Promise<void>;
}

async function mongodbFixture(rule: 'validator' | 'history'): Promise<Fixture> {
  const uri = freshUri();
  const db = rawClient(uri).db();
  const store = await opened(mongodb({ uri }));
  const validate = async (validator: object): Promise<void> => {
    await db.command({ collMod: 'tidemill_jobs', validator });
  };
  const history = async (value: unknown): Promise<void> => {
    await db
      .collection<{ _id: string }>('tidemill_jobs')
      .updateOne({ _id: 'poison' }, { $set: { history: value } });
  };
  const held = { $or: [{ _id: { $ne: 'poison' } }, { status: 'processing' }] };
  return rule === 'validator'
    ? { store, refuse: () => validate(held), allow: () => validate({}) }
    : { store, refuse: () => history('not a list'), allow: () => history([]) };
}

async function postgresFixture(rule: string): Promise<Fixture> {
  const schema = `test_${randomBytes(6).toString('hex')}`;
  const pool = rawPool();
  const store = await opened(freshPostgres({ schema }));
  const run = async (text: string): Promise<void> => {
    await pool.query(text);
  };
  if (rule === 'history') {
    const history = (value: string) => () =>
      run(`update ${schema}.jobs set history = '${value}' where id = 'poison'`);
    return { store, refuse: history('{"not": "a list"}'), allow: history('[]') };
  }
  const body = `begin raise exception 'no end for you' using errcode = '${rule}'; end`;
  return {
    store,
    refuse: () =>
      run(`create function ${schema}.refuse() returns trigger language plpgsql as $$ ${body} $$;
        create trigger refuse before update on ${schema}.jobs for each row
        when (old.id = 'poison' and new.status <> 'processing') execute function ${schema}.refuse()`),
    allow: () => run(`drop trigger refuse on ${schema}.jobs`),
  };
}

const fixtures: readonly (readonly [string, () => Promise<Fixture>])[] = [
  ['a MongoDB validator (121)', () => mongodbFixture('validator')],
  ['a MongoDB history that is no list (28664)', () => mongodbFixture('history')],
  ['a PostgreSQL constraint (23514)', () => postgresFixture('23514')],
  ['a missing PostgreSQL privilege (42501)', () => postgresFixture('42501')],
  ['a PostgreSQL history that is no list (22023)', () => postgresFixture('history')],
];

describe.each(fixtures)('an outcome refused by %s', (_, make) => {
  it('sets a refused outcome aside, records all others, and records it once the database accepts it', async () => {
    const { store, refuse, allow } = await make();
    const mill = aMill(store, { concurrency: 2 });
    const [errors, runs]: [unknown[], string[]] = [[], []];
    mill.on('error', ({ error }) => errors.push(error));
    mill.job('a', { concurrency: 2 }, async (job) => {
      runs.push(job.id);
      if (job.id === 'poison') await refuse();
      return job.id;
    });
    await mill.start();
    const others = Array.from({ length: 20 }, (_none, n) => ({ name: 'a', id: `other-${String(n)}` }));
    await mill.enqueueMany([...others.slice(0, 10), { name: 'a', id: 'poison' }, ...others.slice(10)]);
    await until('it is set aside', () => !mill.isHealthy());
    expect(mill.health().reasons).toEqual([
      expect.stringMatching(/^outcomes that the database refuses: 1 \(a poison: /u),
    ]);
    await mill.enqueue('a', {}, { id: 'later' });
    await until(
      'all others are recorded',
      async () => (await mill.jobs.count({ status: 'completed' })) === 21,
    );
    expect(errors).toContainEqual(expect.objectContaining({ code: 'OUTCOME_REFUSED' }));
    expect(await mill.jobs.get('poison')).toMatchObject({ status: 'processing' });
    expect(mill.health().running).toBe(0);
    await allow();
    await until('it is recorded', async () => (await mill.jobs.get('poison'))?.status === 'completed');
    expect(await mill.jobs.get('poison')).toMatchObject({ failCount: 0, result: 'poison' });
    expect(runs.filter((id) => id === 'poison')).toHaveLength(1);
    await until('the instance is well again', () => mill.isHealthy());
  });

  it('reruns the other jobs of a dead process although the database refuses the outcome of one', async () => {
    const { store, refuse } = await make();
    const dead = anInstance();
    const registration = { names: ['a'], tasks: [], policies: {}, host: 'h', pid: 1, leaseMs: 1 };
    await store.jobs.insert(
      ['one', 'poison', 'two'].map((id) => aJob({ name: 'a', id, ownId: true, data: {} })),
    );
    await store.instances.register({ ...dead, ...registration });
    expect((await store.jobs.claim(aClaim(dead, { names: ['a'] }))).jobs).toHaveLength(3);
    await refuse();
    const mill = aMill(store, { leaseDuration: '1s', pollInterval: { min: '50ms', max: '200ms' } });
    const errors: unknown[] = [];
    mill.on('error', ({ error }) => errors.push(error));
    mill.job('a', () => undefined);
    await mill.start();
    await until('the others have run', async () => (await mill.jobs.count({ status: 'completed' })) === 2);
    await until('it was reported', () =>
      errors.some((error) => (error as TidemillError).code === 'OUTCOME_REFUSED'),
    );
    expect(await mill.jobs.get('poison')).toMatchObject({ status: 'processing', failCount: 0 });
  });
});

it('sets aside an outcome whose error looks like a database failure while others are recorded', async () => {
  const { store, refuse, allow } = await postgresFixture('XX000');
  const mill = aMill(store, { concurrency: 2 });
  const errors: unknown[] = [];
  mill.on('error', ({ error }) => errors.push(error));
  mill.job('a', { concurrency: 2 }, async (job) => {
    if (job.id === 'poison') await refuse();
    return job.id;
  });
  await mill.start();
  await mill.enqueue('a', {}, { id: 'poison' });
  await until('it has met trouble', () => errors.length > 0);
  const others: string[] = [];
  await until('it is set aside', async () => {
    others.push((await mill.enqueue('a', {})).id);
    return !mill.isHealthy();
  });
  expect(mill.health().reasons).toEqual([
    expect.stringMatching(/^outcomes that the database refuses: 1 \(a poison: /u),
  ]);
  for (const id of others) expect(await mill.jobs.result(id)).toBe(id);
  await allow();
  expect(await mill.jobs.result('poison')).toBe('poison');
});

it('stops claiming only the name with many refused outcomes until the database accepts them', async () => {
  const store = memory();
  const settle = store.jobs.settle.bind(store.jobs);
  let isRefusing = true;
  Object.assign(store.jobs, {
    settle: (batch: readonly Settlement[]) =>
      isRefusing && batch.some(({ lease }) => lease.id.startsWith('poison'))
        ? Promise.reject(new StoreError('no end for you', { transient: false }))
        : settle(batch),
  });
  const mill = aMill(store, { concurrency: 10 });
  mill.on('error', () => undefined);
  let runs = 0;
  mill.job('poison', { concurrency: 5 }, async () => {
    await new Promise((resolve) => setTimeout(resolve, 5));
    runs += 1;
  });
  mill.job('other', { concurrency: 5 }, () => undefined);
  await mill.start();
  const many = (name: string, count: number): { name: string; id: string }[] =>
    Array.from({ length: count }, (_none, n) => ({ name, id: `${name}-${String(n)}` }));
  await mill.enqueueMany(many('poison', 2_500));
  await until('nothing of it runs', () => {
    const { ok, running, buffered } = mill.health();
    return !ok && running === 0 && buffered === 0;
  });
  expect(runs).toBeLessThan(1_000);
  await mill.enqueueMany(many('other', 100));
  await until('others are recorded', async () => (await mill.jobs.count({ status: 'completed' })) === 100);
  isRefusing = false;
  await until('all are recorded', async () => (await mill.jobs.count({ status: 'completed' })) === 2_600);
  expect(runs).toBe(2_500);
});
