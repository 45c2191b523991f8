import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import type { AuditPage, Operation } from '../../src/dashboard/contract.js';
import { Tidemill } from '../../src/index.js';
import { memory } from '../../src/memory/index.js';
import { openStore } from '../../src/mill/opening/open-store.js';
import { aClient } from '../dashboard/client.js';
import { aMill, gate, until } from '../support/mills.js';
import { rawPool } from '../support/stores.js';
import { tidemill } from '../cli/terminal.js';

const refOf = (id: string): string => Buffer.from(id).toString('base64url');
const rowsOf = async (mill: Tidemill): Promise<readonly (readonly [string, string, string])[]> =>
  (await mill.audit.list()).items.map(({ action, target, outcome }) => [action, target, outcome] as const);

describe('the audit log of the dashboard', () => {
  it('an action is logged before it is done, and its outcome once it is known', async () => {
    const mill = aMill(memory());
    const client = aClient(mill);
    const [asked, answered] = [gate(), gate()];
    const pause = mill.jobs.pause.bind(mill.jobs);
    mill.jobs.pause = async (name) => {
      asked.open();
      await answered.promise;
      return pause(name);
    };
    const acting = client.post('names', { action: 'pause', kind: 'jobs', name: 'mail' });
    await asked.promise;
    // If the process were killed here, this is what the log would show.
    expect(await rowsOf(mill)).toEqual([['pause', 'jobs of the name mail', 'begun, end unknown']]);
    const { items } = await client.get<AuditPage>('audit');
    expect(items[0]).toMatchObject({ actor: 'ada', outcome: 'begun, end unknown' });
    answered.open();
    expect((await acting).status).toBe(200);
    expect(await rowsOf(mill)).toEqual([['pause', 'jobs of the name mail', 'paused']]);
  });

  it('an action that cannot be logged is not done, and a failure to log its outcome does not undo it', async () => {
    const mill = aMill(memory());
    const told: unknown[] = [];
    const client = aClient(mill, { onError: (error) => told.push(error) });
    const append = mill.audit.append.bind(mill.audit);
    const amend = mill.audit.amend.bind(mill.audit);
    mill.audit.append = () => Promise.reject(new Error('full'));
    expect((await client.post('names', { action: 'pause', kind: 'jobs', name: 'a' })).status).toBe(500);
    expect(await mill.jobs.paused()).toEqual([]);
    mill.audit.append = append;
    mill.audit.amend = () => Promise.reject(new Error('full'));
    told.length = 0;
    expect((await client.post('names', { action: 'pause', kind: 'jobs', name: 'a' })).status).toBe(200);
    expect(told).toHaveLength(1);
    mill.audit.amend = amend;
    expect(await rowsOf(mill)).toEqual([['pause', 'jobs of the name a', 'begun, end unknown']]);
  });

  it('a bulk action is logged with its jobs or its filter', async () => {
    const mill = aMill(memory());
    const client = aClient(mill);
    const ids = await Promise.all(
      [1, 2, 3].map(async (n) => (await mill.enqueue('pay', n, { delay: '1h' })).id),
    );
    const run = async (target: object): Promise<void> => {
      const { body } = await client.post<Operation>('actions', { action: 'cancel', target });
      await until(
        'it has ended',
        async () => (await client.get<Operation>(`operations/${body.id}`)).state === 'done',
      );
    };
    await run({ kind: 'jobs', ids: ids.slice(0, 2).map(refOf) });
    await run({ kind: 'jobs', query: 'name=pay&status=pending' });
    const [byFilter, byIds] = (await mill.audit.list()).items;
    expect(byIds).toMatchObject({
      target: `2 selected: job ${ids[0]!}, job ${ids[1]!}`,
      details: { target: { ids: [`job ${ids[0]!}`, `job ${ids[1]!}`] } },
      outcome: '2 of 2',
    });
    expect(byFilter).toMatchObject({
      target: 'jobs with name pay, status pending',
      details: { target: { query: 'name=pay&status=pending&kind=jobs' } },
    });
  });

  it('stopping a bulk action is logged with its actor', async () => {
    const mill = aMill(memory());
    const [ada, eve] = ['ada', 'eve'].map((actor) =>
      aClient(mill, { authorize: () => ({ rights: ['view', 'payload', 'act'], actor }) }),
    );
    const { promise, open } = gate();
    mill.jobs.cancelMany = async (_filter, options) => {
      await promise;
      await options?.onProgress?.(0);
      return { count: 0 };
    };
    await mill.enqueue('pay', 1, { delay: '1h' });
    const { body } = await ada!.post<Operation>('actions', {
      action: 'cancel',
      target: { kind: 'jobs', query: '' },
    });
    expect((await eve!.post(`operations/${body.id}/stop`, {})).status).toBe(200);
    const [stop] = (await mill.audit.list()).items;
    expect(stop).toMatchObject({
      actor: 'eve',
      action: 'stop',
      target: `cancel of all jobs (${body.id})`,
      outcome: 'requested',
    });
    open();
    await until(
      'it has ended',
      async () => (await ada!.get<Operation>(`operations/${body.id}`)).state !== 'running',
    );
  });
});

describe('the audit log of the command line', () => {
  const schema = `test_${randomBytes(6).toString('hex')}`;
  const pool = rawPool();
  const flags = (): string[] => ['--store', inject('postgresUrl'), '--schema', schema];
  let mill: Tidemill;

  beforeAll(async () => {
    mill = new Tidemill({ store: await openStore(inject('postgresUrl'), { schema }), logger: false });
    await mill.enqueue('pay', 1, { delay: '1h' });
  });
  afterAll(async () => {
    await mill.stop();
    await pool.query(`drop schema if exists ${schema} cascade; drop schema if exists ${schema}_shop cascade`);
  });

  it('every command that changes something is logged with its target', async () => {
    const { id } = await mill.enqueue('mail', 1, { delay: '1h' });
    await pool.query(`create schema ${schema}_shop; create table ${schema}_shop.orders (id int primary key)`);
    for (const args of [
      ['pause', 'mail'],
      ['resume', 'mail'],
      ['cancel', id],
      ['retry', '--name', 'mail', '--yes'],
      ['run', 'mail', '--delay', '1h'],
      ['drop-triggers', `${schema}_shop.orders`],
    ])
      await tidemill([...args, ...flags()]);
    const rows = [...(await rowsOf(mill))].reverse();
    expect(rows).toEqual([
      ['jobs.pause', 'mail', 'paused'],
      ['jobs.resume', 'mail', 'resumed'],
      ['jobs.cancel', `mail ${id}`, 'cancelled'],
      ['jobs.retryMany', 'named mail, failed or cancelled', '1 changed'],
      ['jobs.enqueue', 'mail', expect.stringMatching(/^created \w+$/u)],
      ['tables.dropTriggers', `${schema}_shop.orders`, 'missing'],
    ]);
  });

  it('a command that was killed is logged with an unknown end', async () => {
    const [{ id } = { id: '' }] = (await mill.jobs.find({ name: 'pay' })).items;
    const holder = await pool.connect();
    try {
      // The command waits for this row, and has not changed anything when it is killed.
      await holder.query(`begin; select from ${schema}.jobs where id = '${id}' for update`);
      const main = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url));
      const child = spawn(process.execPath, ['--import', 'tsx', main, 'cancel', id, ...flags()]);
      const ended = once(child, 'exit');
      await until('it has begun', async () => (await rowsOf(mill))[0]?.[1] === `pay ${id}`);
      child.kill('SIGKILL');
      await ended;
    } finally {
      await holder.query('rollback');
      holder.release();
    }
    expect((await rowsOf(mill))[0]).toEqual(['jobs.cancel', `pay ${id}`, 'begun, end unknown']);
    const { out } = await tidemill(['ls', 'audit', '--limit', '1', ...flags()]);
    expect(out).toMatch(new RegExp(`jobs\\.cancel +pay ${id} +begun, end unknown`, 'u'));
  });
});
