import { randomBytes } from 'node:crypto';
import { MongoClient, type CommandStartedEvent } from 'mongodb';
import { afterAll, describe, expect, it } from 'vitest';
import { mongodb } from '../../src/mongodb/index.js';
import { postgres } from '../../src/postgres/index.js';
import type { Tidemill } from '../../src/index.js';
import { aMill, until } from '../support/mills.js';
import { freshUri, rawPool } from '../support/stores.js';

const pool = rawPool();
const schema = `test_${randomBytes(6).toString('hex')}`;

/** Each kind of count, as the dashboard requests it. */
async function countAll(mill: Tidemill, collection: string): Promise<void> {
  await mill.jobs.count({ error: 'x' }, { limit: 10 });
  await mill.tasks.count({ errorMessage: 'x' }, { limit: 10 });
  await mill.documents({ collection, onDocument: () => undefined }).count({ state: 'due' }, { limit: 10 });
}

describe('counts with a limit', () => {
  afterAll(async () => {
    await pool.query(`drop schema if exists ${schema} cascade; drop table if exists ${schema}_tenants`);
  });

  it('a count on PostgreSQL has a time limit, and its error says what to do', async () => {
    await pool.query(`create table ${schema}_tenants (id int primary key, sleep_until timestamptz)`);
    const own = rawPool();
    const said: string[] = [];
    own.on('connect', (client) => {
      const query = client.query.bind(client) as (...args: unknown[]) => unknown;
      Reflect.set(client, 'query', (...args: unknown[]) => {
        const [first] = args as [string | { text?: string }];
        said.push(typeof first === 'string' ? first : (first.text ?? ''));
        return query(...args);
      });
    });
    const mill = aMill(postgres({ pool: own, schema }));
    await countAll(mill, `${schema}_tenants`);
    expect(said.filter((text) => text.includes('statement_timeout'))).toHaveLength(3);

    const holder = await pool.connect();
    try {
      await holder.query(`begin; lock table ${schema}.jobs in access exclusive mode`);
      await expect(mill.jobs.count({ error: 'x' }, { limit: 10 })).rejects.toMatchObject({
        code: 'TIME_LIMIT',
        message: expect.stringContaining('Narrow the filter') as string,
      });
    } finally {
      await holder.query('rollback');
      holder.release();
    }
    await mill.stop();
  });

  it('a count on MongoDB has a time limit', async () => {
    const client = await MongoClient.connect(freshUri(), { monitorCommands: true });
    const mill = aMill(mongodb({ client }));
    const counts: CommandStartedEvent[] = [];
    await mill.jobs.count();
    client.on('commandStarted', (event) => {
      if (event.commandName === 'aggregate' && JSON.stringify(event.command).includes('"$limit":10'))
        counts.push(event);
    });
    await mill.reactiveTask({ task: 'ship', collection: 'orders', handler: () => undefined });
    await countAll(mill, 'tenants');
    expect(counts.map(({ command }) => Number((command as { maxTimeMS?: number }).maxTimeMS))).toEqual([
      5_000, 10_000, 5_000,
    ]);

    // A source with a collation is queried separately, in several calls that share one limit.
    await client.db().createCollection('people', { collation: { locale: 'en', strength: 2 } });
    await mill.reactiveTask({ task: 'greet', collection: 'people', debounce: 0, handler: () => undefined });
    await client.db().collection('people').insertOne({ name: 'ADA' });
    await mill.start();
    const filter = { task: 'greet', sourceDocFilter: { name: 'ada' } };
    await until('it is planned', async () => (await mill.tasks.count(filter)) === 1);
    const finds: CommandStartedEvent[] = [];
    client.on('commandStarted', (event) => {
      if (event.commandName === 'find' && ['people', 'people_tasks'].includes(String(event.command['find'])))
        finds.push(event);
    });
    expect(await mill.tasks.count(filter, { limit: 10 })).toBe(1);
    const counted = finds.filter(({ command }) => 'maxTimeMS' in command);
    expect(counted.map(({ command }) => String(command['find']))).toEqual(['people_tasks', 'people']);
    await mill.stop();
    await client.close();
  });
});
