import { describe, expect, it } from 'vitest';
import type {
  AuditPage,
  LimitRow,
  LimitsPage,
  Overview,
  WorkDetail,
  WorkPage,
} from '../../src/dashboard/contract.js';
import type { Tidemill } from '../../src/index.js';
import { memory } from '../../src/memory/index.js';
import { aMill, gate, until } from '../support/mills.js';
import { aClient, type Client } from './client.js';

/** A mill whose job has every kind of limit; its handlers wait until they are let go. */
async function limitedMill(): Promise<{ mill: Tidemill; ids: readonly string[]; release: () => void }> {
  const mill = aMill(memory());
  const held = gate();
  mill.limit('erp-api', { concurrency: 10, rate: { limit: 50, per: '1s', burst: 50 } });
  mill.job(
    'call-api',
    {
      concurrency: 5,
      limits: { concurrency: 30, shared: ['erp-api'], perKey: { key: 'customer', order: 'fifo' } },
      breaker: { failures: 20, within: '1m', pause: '90s' },
    },
    () => held.promise,
  );
  mill.job('send-email', () => undefined);
  await mill.start();
  const jobs = await mill.enqueueMany(
    ['acme', 'acme', 'acme'].map((customer) => ({ name: 'call-api', data: { customer } })),
  );
  return { mill, ids: jobs.map(({ id }) => id), release: () => held.open() };
}

const rowOf = async (client: Client, name: string): Promise<LimitRow> => {
  const row = (await client.get<LimitsPage>('limits')).items.find((one) => one.name === name);
  if (row === undefined) throw new Error(`no limit is called ${name}`);
  return row;
};

const waiting = (client: Client): Promise<LimitRow> =>
  until('one runs and two wait', async () => {
    const row = await rowOf(client, 'call-api');
    return row.use.running === 1 && row.use.waiting === 2 && (row.keys?.[0]?.due ?? 0) === 2 && row;
  });

describe('limits in the dashboard', () => {
  it('lists limits with their use, their values in words, and the keys that wait', async () => {
    const { mill, release } = await limitedMill();
    const client = aClient(mill);
    expect(await waiting(client)).toMatchObject({
      kind: 'job',
      text: '30 at once · per key in order · shares erp-api · breaker after 20 failures within 1m, for 90s',
      limits: {
        concurrency: 30,
        perKey: { ordered: true },
        breaker: { failures: 20, within: '1m', pause: '90s' },
      },
      breaker: { state: 'closed', until: null },
      keys: [{ key: 'acme', running: 1, due: 2, freeAt: null }],
      actions: ['set-limit', 'open-breaker'],
    });
    const { items, unlimited } = await client.get<LimitsPage>('limits');
    expect(items.map(({ kind, name, text }) => [kind, name, text])).toEqual([
      ['job', 'call-api', expect.any(String)],
      ['shared', 'erp-api', '10 at once · 50 per 1s, burst 50'],
    ]);
    expect(items[1]?.use.waiting).toBe(2);
    expect(unlimited).toEqual(['send-email']);
    release();
  });

  it('shows keys only to viewers with the right payload, also where a reason quotes one', async () => {
    const { mill, release, ids } = await limitedMill();
    const client = aClient(mill);
    await waiting(client);
    const watcher = aClient(mill, { authorize: () => ['view'] });
    expect(await rowOf(watcher, 'call-api')).toMatchObject({
      keys: [{ key: '[redacted]', due: 2 }],
      actions: [],
    });
    expect((await watcher.get<LimitsPage>('limits')).unlimited).toEqual([]);
    const { items } = await client.get<WorkPage>('work?status=pending');
    const second = items.find(({ title }) => title === ids[1]);
    const sentences = async (viewer: Client): Promise<readonly string[]> =>
      (await viewer.get<WorkDetail>(`work/jobs/${second?.id ?? ''}`)).why.map(({ text }) => text);
    expect(await sentences(client)).toEqual([
      `It waits for its turn in the order of key "acme": job ${ids[0] ?? ''} comes first.`,
      'It waits for key "acme", of which 1 run, the most at once.',
    ]);
    expect(await sentences(watcher)).toEqual([
      `It waits for its turn in the order of key [redacted]: job ${ids[0] ?? ''} comes first.`,
      'It waits for key [redacted], of which 1 run, the most at once.',
    ]);
    expect(await client.get<WorkDetail>(`work/jobs/${second?.id ?? ''}`)).toMatchObject({
      facts: expect.arrayContaining([{ label: 'limit key', value: 'acme' }]) as unknown,
    });
    release();
  });

  it('changes a limit by field and resets it, with the values before and after in the audit log', async () => {
    const { mill, release } = await limitedMill();
    const client = aClient(mill);
    const about = { kind: 'shared', name: 'erp-api' };
    const set = { action: 'set-limit', ...about, changes: { concurrency: 2, rate: null } };
    expect(await client.post('limits', set)).toMatchObject({
      status: 200,
      body: { outcome: 'set: 2 at once' },
    });
    expect(await rowOf(client, 'erp-api')).toMatchObject({
      limits: { concurrency: 2 },
      set: { at: expect.any(String) as string, code: '10 at once · 50 per 1s, burst 50' },
      actions: ['set-limit', 'reset-limit'],
    });
    expect(await client.post('limits', { action: 'reset-limit', ...about })).toMatchObject({ status: 200 });
    expect((await mill.limits.get('erp-api'))?.limits).toMatchObject({
      concurrency: 10,
      rate: { limit: 50 },
    });
    const { items } = await mill.audit.list();
    const code = { concurrency: 10, rate: { limit: 50, perMs: 1_000, burst: 50 } };
    expect(items.map(({ action, actor, target, details }) => [action, actor, target, details])).toEqual([
      ['reset-limit', 'ada', 'shared limit erp-api', { before: { concurrency: 2 }, after: code }],
      ['set-limit', 'ada', 'shared limit erp-api', { before: code, after: { concurrency: 2 } }],
    ]);
    expect((await client.get<AuditPage>('audit')).items[1]).toMatchObject({ outcome: 'set: 2 at once' });
    release();
  });

  it('gives a job without a limit one', async () => {
    const { mill, release } = await limitedMill();
    const client = aClient(mill);
    const changes = { rate: { limit: 5, per: '1m' } };
    await client.post('limits', { action: 'set-limit', kind: 'job', name: 'send-email', changes });
    expect(await rowOf(client, 'send-email')).toMatchObject({ text: '5 per 1m', set: { code: 'no limit' } });
    release();
  });

  it('opens a breaker and closes it again', async () => {
    const { mill, release } = await limitedMill();
    const client = aClient(mill);
    const turn = (action: string, name = 'call-api'): ReturnType<Client['post']> =>
      client.post('limits', { action, kind: name === 'erp-api' ? 'shared' : 'job', name });
    expect(await turn('open-breaker')).toMatchObject({ body: { outcome: 'opened' } });
    expect(await rowOf(client, 'call-api')).toMatchObject({
      breaker: { state: 'open', until: expect.any(String) as string },
      actions: ['set-limit', 'close-breaker'],
    });
    expect(await turn('close-breaker')).toMatchObject({ body: { outcome: 'closed' } });
    expect((await rowOf(client, 'call-api')).breaker).toEqual({ state: 'closed', until: null });
    expect(await turn('open-breaker', 'erp-api')).toMatchObject({ status: 409 });
    release();
  });

  it.each([
    [{ action: 'set-limit', kind: 'job', name: 'call-api', changes: { concurrency: 0 } }, 'pause its name'],
    [{ action: 'set-limit', kind: 'job', name: 'call-api', changes: { rate: 0 } }, 'must be an object'],
    [{ action: 'set-limit', kind: 'job', name: 'call-api', changes: {} }, 'nothing to change'],
    [
      { action: 'set-limit', kind: 'job', name: 'call-apy', changes: { concurrency: 1 } },
      'Did you mean "call-api"?',
    ],
    [
      { action: 'set-limit', kind: 'jobs', name: 'call-api', changes: { concurrency: 1 } },
      '"kind" must be one of',
    ],
    [{ action: 'retry', kind: 'job', name: 'call-api' }, 'Limits have no action "retry"'],
    [{ action: 'set-limit', kind: 'job', name: 'password=hunter2', changes: {} }, 'This name is hidden'],
    [{ action: 'reset-limit', kind: 'job', name: 'call-api', changes: {} }, 'Unknown key "changes"'],
  ])('refuses %j with the reason', async (body, message) => {
    const { mill, release } = await limitedMill();
    const answer = await aClient(mill).post<{ error: { message: string } }>('limits', body);
    expect(answer.status).toBe(400);
    expect(answer.body.error.message).toContain(message);
    expect((await mill.limits.get('call-api'))?.source).toBe('code');
    release();
  });

  it('lets only viewers with the right act change limits', async () => {
    const { mill, release } = await limitedMill();
    const client = aClient(mill, { authorize: () => ['view', 'payload'] });
    const reset = { action: 'reset-limit', kind: 'job', name: 'call-api' };
    expect((await client.post('limits', reset)).status).toBe(403);
    expect((await mill.audit.list()).items).toEqual([]);
    release();
  });
});

describe('a pause of all work in the dashboard', () => {
  it('pauses and resumes all work, and says so on the overview', async () => {
    const mill = aMill(memory());
    const client = aClient(mill);
    expect((await client.get<Overview>('overview')).paused).toBe(false);
    expect(await client.post('everything', { action: 'pause' })).toMatchObject({
      body: { outcome: 'paused' },
    });
    expect(await mill.paused()).toBe(true);
    expect((await client.get<Overview>('overview')).paused).toBe(true);
    expect(await client.post('everything', { action: 'retry' })).toMatchObject({ status: 400 });
    await client.post('everything', { action: 'resume' });
    expect(await mill.paused()).toBe(false);
    const { items } = await mill.audit.list();
    expect(items.map(({ action, target, outcome }) => [action, target, outcome])).toEqual([
      ['resume', 'all work', 'resumed'],
      ['pause', 'all work', 'paused'],
    ]);
  });
});
