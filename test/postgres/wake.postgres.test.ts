import { describe, expect, inject, it } from 'vitest';
import { namesIn } from '../../src/sql/schema/names.js';
import { aMill, rarely, until } from '../support/mills.js';
import { aClaim, aJob, anInstance, opened } from '../support/port.js';
import { freshPostgres, rawPool } from '../support/stores.js';
import { wakeFacts } from '../support/wake-facts.js';

const pool = rawPool();
const aSchema = (): string => `test_bell_${Math.random().toString(36).slice(2)}`;

describe('wake-ups on PostgreSQL', () => {
  wakeFacts('a notification', () => {
    const schema = aSchema();
    const worker = aMill(freshPostgres({ schema }), { pollInterval: rarely });
    return { worker, operator: aMill(freshPostgres({ schema })) };
  });

  it('a named claim takes only jobs that are due, of a requested name and not paused', async () => {
    const store = await opened(freshPostgres());
    const later = new Date(Date.now() + 3_600_000);
    const inserted = await store.jobs.insert([
      aJob(),
      aJob({ name: 'paused' }),
      aJob({ nextRunAt: later }),
      aJob({ name: 'other' }),
      aJob({ priority: 5 }),
    ]);
    await store.jobs.pauseName('paused');
    const hints = inserted.slice(0, 4).map(({ job }) => ({ key: job.key, name: job.name }));
    const request = (): ReturnType<typeof aClaim> =>
      aClaim(anInstance(), { names: ['work', 'paused'], hints });
    const first = await store.jobs.claim(request());
    expect(first.jobs.map(({ id }) => id)).toEqual([inserted[0]!.job.id]);
    expect({ ...first.jobs[0], bytes: undefined }).toEqual(await store.jobs.get(inserted[0]!.job.id));
    expect((await store.jobs.claim(request())).jobs).toEqual([]);
    const rest = await store.jobs.claim(aClaim(anInstance(), { names: ['work', 'paused'] }));
    expect(rest.jobs.map(({ id }) => id)).toEqual([inserted[4]!.job.id]);
  });

  it('a transaction with new jobs notifies once, after its commit, and names them', async () => {
    const schema = aSchema();
    const mill = aMill(freshPostgres({ schema }));
    await mill.enqueue('other', {}, { delay: '1h' });
    const client = await pool.connect();
    const heard: unknown[] = [];
    client.on('notification', ({ payload }) => heard.push(JSON.parse(payload ?? '')));
    await client.query(`listen "${namesIn(schema).channel}"`);
    const enqueue = async (transaction: unknown): Promise<string> => {
      const options = { data: {}, transaction: transaction as never };
      const [first] = await mill.enqueueMany(['a', 'b', 'a'].map((name) => ({ name, ...options })));
      await pool.query('select 1');
      expect(heard).toEqual([]);
      return first!.id;
    };
    const message = (key: string): unknown => ({
      what: 'jobs',
      key,
      name: 'a',
      due: [
        ['a', 2],
        ['b', 1],
      ],
    });
    const own = await mill.withTransaction(enqueue);
    await until('the notification arrives', () => heard.length > 0);
    // Notifications arrive in order: had there been more, they would come before this one.
    await client.query(`notify "${namesIn(schema).channel}", '"end"'`);
    await until('the end arrives', () => heard.includes('end'));
    expect(heard.splice(0)).toEqual([message(own), 'end']);
    const other = await pool.connect();
    await other.query('begin');
    const foreign = await enqueue(other);
    await other.query('commit');
    other.release();
    await until('the notification arrives', () => heard.length > 0);
    await client.query(`notify "${namesIn(schema).channel}", '"end"'`);
    await until('the end arrives', () => heard.includes('end'));
    expect(heard).toEqual([message(foreign), 'end']);
    client.release(true);
  });

  it('wake-ups work again after the listening connection was killed', async () => {
    const schema = aSchema();
    const worker = aMill(freshPostgres({ schema }), { pollInterval: { min: '1s', max: '1s' } });
    const errors: unknown[] = [];
    worker.on('error', ({ error }) => errors.push(error));
    worker.job('x', () => 'ran');
    await worker.start();
    const listener = async (): Promise<number | undefined> => {
      const text = `select pid from pg_stat_activity where query = $1`;
      const { rows } = await pool.query<{ pid: number }>(text, [`listen "${namesIn(schema).channel}"`]);
      return rows[0]?.pid;
    };
    const first = await until('it listens', listener);
    await pool.query('select pg_terminate_backend($1)', [first]);
    await until('the loss is told', () => errors.length > 0);
    await until('another connection listens', async () => ![first, undefined].includes(await listener()));
    await until('it knows', () => worker.health().wakeUp === 'stream');
    expect(await worker.jobs.result((await worker.enqueue('x', {})).id)).toBe('ran');
  });

  it('cancelling a running job reaches its worker', async () => {
    const schema = aSchema();
    const worker = aMill(freshPostgres({ schema }));
    const operator = aMill(freshPostgres({ schema }));
    worker.job(
      'x',
      (job) =>
        new Promise((_resolve, reject) => {
          job.signal.addEventListener('abort', () => reject(job.signal.reason as Error));
        }),
    );
    await worker.start();
    const job = await worker.enqueue('x', {});
    await until('it runs', async () => (await operator.jobs.get(job.id))?.status === 'processing');
    expect(await operator.jobs.cancel(job.id, { wait: true })).toMatchObject({ outcome: 'cancelled' });
  });

  it('falls back to polling and warns if notifications cannot be heard', async () => {
    // Another database has channels of its own: notifications from here are not heard there.
    const listenUrl = inject('postgresUrl').replace(/postgres$/u, 'template1');
    const warnings: string[] = [];
    const logger = {
      debug: () => {},
      info: () => {},
      warn: (...said: unknown[]) => warnings.push(JSON.stringify(said)),
      error: () => {},
    };
    const mill = aMill(freshPostgres({ listenUrl }), { logger, pollInterval: { min: 20, max: 50 } });
    mill.job('x', () => 'ran');
    await mill.start();
    await until('it has given up', () => mill.health().wakeUp === 'poll');
    await until('it says so', () => warnings.length > 0);
    expect(warnings.join()).toContain('listenUrl');
    expect(await mill.jobs.result((await mill.enqueue('x', {})).id)).toBe('ran');
  });

  it('ignores foreign messages on the notification channel', async () => {
    const schema = aSchema();
    const store = freshPostgres({ schema });
    const mill = aMill(store, { pollInterval: rarely });
    mill.job('x', () => 'ran');
    await mill.start();
    await until('it listens', () => mill.health().wakeUp === 'stream');
    for (const nonsense of ['', 'hello', '{}', '[1]', '"jobs"', 'null'])
      await pool.query('select pg_notify($1, $2)', [namesIn(schema).channel, nonsense]);
    expect(await mill.jobs.result((await mill.enqueue('x', {})).id)).toBe('ran');
  });
});

describe('killed PostgreSQL connections', () => {
  it('killed connections cost no job and no process', async () => {
    const schema = aSchema();
    const mill = aMill(freshPostgres({ schema }), { pollInterval: { min: 20, max: 50 } });
    let runs = 0;
    mill.job('x', () => (runs += 1));
    await mill.start();
    const ids: string[] = [];
    for (let round = 0; round < 4; round += 1) {
      const jobs = await until('it is taken', () =>
        mill
          .enqueueMany(
            Array.from({ length: 50 }, (_, n) => ({ name: 'x', id: `${String(round)}-${String(n)}` })),
          )
          .catch(() => undefined),
      );
      ids.push(...jobs.map((job) => job.id));
      await pool.query(
        `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'tidemill' and query like $1`,
        [`%${schema}%`],
      );
    }
    await until('all have run', async () => {
      const count = await mill.jobs.count({ status: 'completed' }).catch(() => 0);
      return count === ids.length;
    });
    expect(runs).toBeGreaterThanOrEqual(200);
  });
});
